// Checks that a coordinator listens at an endpoint before the agent uses it, so that errors name the cause.
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
  std::string local_address;  // numeric, of this host on that connection (before any address translation)
};

struct FindLimits {
  Duration total = seconds(60);
  // Fail on a refused connection: the host is up but its coordinator has exited. Do not wait for a new one.
  bool refusal_is_final = false;
  // Appended to the error when `total` has passed; says how to change the limit.
  std::string advice = {};
  // Called with a line for each step: names and addresses, attempts and results.
  std::function<void(absl::string_view)> trace = [](absl::string_view) {};
};

// Resolves `host`, connects and requests GET /healthz. Retries with growing pauses within the limits. A
// connect attempt times out after 1 s, doubled after each timeout.
//   tell:   called with a line for people when a wait begins and when its reason changes.
//   Errors: kUnavailable: no coordinator answered within the limits, or the name did not resolve;
//           kFailedPrecondition: another server, or a coordinator of another version, answered; not retried.
//           Each message names the endpoint, the cause and a remedy.
boost::asio::awaitable<absl::StatusOr<FoundCoordinator>> FindCoordinator(
    std::string host, int port, FindLimits limits, std::function<void(absl::string_view)> tell);

}  // namespace ddprun
