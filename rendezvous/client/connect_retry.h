// Connecting to something that may not be there yet.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/time.h"

namespace ddprun {

// Calls `attempt` with the deadline, again and again while it returns kUnavailable, with pauses that grow
// from 10 ms to 1 s. Blocking.
//   Errors: kUnavailable: `timeout` is over, naming `what` and the last reason; any other one of `attempt`.
absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt);

}  // namespace ddprun
