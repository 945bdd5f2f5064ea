// Connecting to a host by TCP, with a deadline. Blocking.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Tries each address of the host once; the caller owns the socket, which does not block and sends at once.
//   Errors: kUnavailable: the name does not resolve by then, or what the last address said.
absl::StatusOr<int> TcpConnect(const std::string& host, int port, TimePoint deadline);

// Waits until `fd` has one of `events` of poll().
//   Errors: kDeadlineExceeded: it has none by then.
absl::Status PollUntil(int fd, short events, TimePoint deadline);

// Connecting to something that may not be there yet.

// Calls `attempt` with the deadline, again and again while it returns kUnavailable, with pauses that grow
// from 10 ms to 1 s. Blocking.
//   Errors: kUnavailable: `timeout` is over, naming `what` and the last reason; any other one of `attempt`.
absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt);

}  // namespace ddprun
