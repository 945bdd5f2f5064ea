// Reads a page from a coordinator's HTTP server.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "net/endpoint.h"

namespace ddprun {

struct CoordinatorPage {
  int status = 0;  // HTTP status. If it is 200, `body` is the page; otherwise, `body` is the reason.
  std::string body;
  std::string address;  // numeric address of the host that answered
};

// Sends GET `path` and returns the response. Blocks for at most `timeout`.
//   Errors: kUnavailable: there is no response, or the response is not from a coordinator. The message has
//           the endpoint and the cause.
absl::StatusOr<CoordinatorPage> GetCoordinatorPage(const Endpoint& endpoint, const std::string& path,
                                                   Duration timeout);
// Returns true if GetCoordinatorPage returned `status` because the host refused the connection, that is, if
// the host is up but no process listens on the port.
bool IsRefused(const absl::Status& status);

// Percent-encodes `text` for use as a value in a URL query.
std::string QueryEncoded(absl::string_view text);

}  // namespace ddprun
