// Connects to a host by TCP, with a deadline. All functions block.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Tries each address of the host once. The caller owns the socket, which is non-blocking and has TCP_NODELAY.
//   Errors: kUnavailable: the name does not resolve by `deadline`, or no address connects; the message has
//           the error for the last address.
absl::StatusOr<int> TcpConnect(const std::string& host, int port, TimePoint deadline);

// Waits until poll() reports one of `events` for `fd`.
//   Errors: kDeadlineExceeded: no event by `deadline`.
absl::Status PollUntil(int fd, short events, TimePoint deadline);

// Connects to a peer that may not be up yet: calls `attempt` with the deadline until it returns anything but
// kUnavailable, with backoff from 10 ms to 1 s.
//   Errors: kUnavailable: `timeout` has passed; the message has `what` and the last error. Others: those of
//           `attempt`, with `what` in front of the message.
absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt);

}  // namespace ddprun
