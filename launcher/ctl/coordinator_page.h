// One page of a coordinator.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/config/endpoint.h"

namespace ddprun {

struct CoordinatorPage {
  int status = 0;  // 200: `body` is the page; else it says why not
  std::string body;
  std::string address;  // numeric, of the host that answered
};

// GET `path`. Blocks, `timeout` at most.
//   Errors: kUnavailable: nobody answered, or no coordinator did, with the endpoint and the cause.
absl::StatusOr<CoordinatorPage> GetCoordinatorPage(const Endpoint& endpoint, const std::string& path,
                                                   Duration timeout);
// True for an error of GetCoordinatorPage from a host that is there, but nobody listens any more.
bool IsRefused(const absl::Status& status);

// `text` as a value in a query.
std::string QueryEncoded(absl::string_view text);

}  // namespace ddprun
