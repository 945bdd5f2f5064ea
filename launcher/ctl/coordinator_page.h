// Reads a page of a coordinator.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/config/endpoint.h"

namespace ddprun {

struct CoordinatorPage {
  int status = 0;  // HTTP status; 200: `body` is the page, otherwise the reason
  std::string body;
  std::string address;  // numeric address of the host that answered
};

// GETs `path`. Blocks for at most `timeout`.
//   Errors: kUnavailable, with the endpoint and the cause: no answer, or not from a coordinator.
absl::StatusOr<CoordinatorPage> GetCoordinatorPage(const Endpoint& endpoint, const std::string& path,
                                                   Duration timeout);
// True for an error of GetCoordinatorPage if the host refused the connection: it is up, but nothing listens.
bool IsRefused(const absl::Status& status);

// Percent-encodes `text` as a value of a URL query.
std::string QueryEncoded(absl::string_view text);

}  // namespace ddprun
