// TCP connections with a deadline. All functions block.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Tries the addresses of `host` in order, each once, until a connection is established. Returns the socket of
// the connection, which is non-blocking and has TCP_NODELAY. The caller owns the socket.
//   Errors: kUnavailable: the name does not resolve by `deadline`, or the connection to every address fails;
//           the message contains the error for the last address.
absl::StatusOr<int> TcpConnect(const std::string& host, int port, TimePoint deadline);

// Waits until poll() reports one of `events`, an error or a hang-up on `fd`.
//   Errors: kDeadlineExceeded: poll() reports nothing by `deadline`.
absl::Status PollUntil(int fd, short events, TimePoint deadline);

// Connects to a peer that may not be listening yet. Calls `attempt` until it returns a status other than
// kUnavailable or until the next attempt would start after the deadline, which is `timeout` from now. Passes
// the deadline to each call. The backoff between two attempts grows from 10 ms to 1 s, and is reduced by a
// random part of at most one half.
// `what` describes the failure in messages.
//   Errors: kUnavailable: no attempt succeeded within `timeout`; the message contains `what` and
//           the last error.
//           Other errors of `attempt` are returned with `what` prepended to the message.
absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt);

}  // namespace ddprun
