// Finds out who listens at an endpoint before anything is asked of it, so that errors can say what is wrong.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/asio/awaitable.hpp"

namespace ddprun {

struct FoundCoordinator {
  std::string address;  // numeric, of the host that answered
  int port = 0;
  std::string
      local_address;  // numeric: this host as that one sees it, unless there is a translation between them
};

struct FindLimits {
  Duration total = seconds(60);
  // A host that is there and refuses the connection has no coordinator any more: do not wait for a new one.
  bool refusal_is_final = false;
  // For the error when `total` is over: what changes it.
  std::string advice = {};
  // Called with one line for each step: names and their addresses, tries and their results.
  std::function<void(absl::string_view)> trace = [](absl::string_view) {};
};

// Resolves `host`, connects and asks GET /healthz, again and again with growing pauses while nobody listens,
// until the limits. One connect attempt has 1 s, twice as much after each one that timed out.
//   tell:   called with one line for people when it has to wait, and when the reason changes.
//   Errors: kUnavailable: nobody listened until the limits, or the name did not resolve;
//           kFailedPrecondition: somebody else listens there (at once; nothing was changed);
//           each with the endpoint, the cause and what to do.
boost::asio::awaitable<absl::StatusOr<FoundCoordinator>> FindCoordinator(
    std::string host, int port, FindLimits limits, std::function<void(absl::string_view)> tell);

}  // namespace ddprun
