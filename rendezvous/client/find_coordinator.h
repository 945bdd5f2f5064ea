// Checks that a coordinator listens at an endpoint before the agent joins, so that errors name the cause.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/asio/awaitable.hpp"
#include "net/endpoint.h"

namespace ddprun {

struct FoundCoordinator {
  std::string address;  // numeric address of the host that answered
  int port = 0;
  std::string local_address;  // numeric address of this host on that connection, before NAT
};

struct FindLimits {
  Duration total = seconds(60);
  // If not empty: further ports on which the coordinator may listen. Then what else listens on one of the ports is passed
  // over, and `job` must be set.
  std::vector<int> more_ports = {};
  // Further names or addresses of the coordinator's host, all of which are tried.
  std::vector<std::string> more_hosts = {};
  // Further endpoints at which it may be. Not together with more_ports and more_hosts; `job` must be set.
  std::vector<Endpoint> more_endpoints = {};
  // If not empty: a coordinator that does not have this job is passed over, and the search continues.
  std::string job = {};
  // A coordinator that takes any job, such as that of --store-only, will do although it does not have `job` yet.
  bool or_any_job = false;
  // If a process does not have `job`, but names the one that has, that one is asked. False: the endpoint is from the job's register,
  // which is newer than what a process says.
  bool follows = true;
  // If true, the search fails when a connection is refused: the host is up, but its coordinator has exited.
  // If false, the search continues, because the coordinator may start later.
  bool refusal_is_final = false;
  // Called when the host is up and refuses the connection; may be empty.
  std::function<void()> on_refused = {};
  // If true, the search fails when no host resolves.
  bool unresolved_is_final = false;
  // Describes how to change `total`. Appended to the error message when `total` has passed.
  std::string advice = {};
  // Called with one line for each step: a name to resolve, an address to connect to, or a result.
  std::function<void(absl::string_view)> trace = [](absl::string_view) {};
};

// Resolves `host`, connects and sends GET /healthz. Tries `host` and limits.more_hosts, each with `port` and
// limits.more_ports, in turn. Retries with growing pauses within the limits. The first
// connect attempt times out after 1 s; the timeout doubles each time it expires.
//   tell:   called with a human-readable line after about 0.6 s of waiting, and again when the cause changes.
//   Errors: kUnavailable: no coordinator answered within the limits, or the name did not resolve;
//           kFailedPrecondition: a server that is not a coordinator answered, or a coordinator of another
//           protocol version. Not retried, except that a server that closes the connection without an answer
//           is tried up to 3 times.
//           Each message names the endpoint, the cause and a remedy.
boost::asio::awaitable<absl::StatusOr<FoundCoordinator>> FindCoordinator(
    std::string host, int port, FindLimits limits, std::function<void(absl::string_view)> tell);

}  // namespace ddprun
