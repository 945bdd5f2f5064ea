// Classifies a failure: the worker's own, caused by the launcher, or caused by another worker's failure.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/failure.h"

namespace ddprun {

// kStopped: the launcher sent the worker a signal, and the worker ended by that signal or by SIGTERM, or
// exited without an exception or with code 128 + signal, or its start was cancelled.
// kFollowsAnother: the worker's error shows that it lost a peer: a closed or reset connection of a
// collective, an aborted communicator, an unreachable store. Ambiguous errors are included, such as a
// timeout, which may also mean that the other ranks waited for this worker. If all failures are
// kFollowsAnother, the earliest one is the cause.
//   exit:        how the worker ended. A worker that never started, or that was killed by a signal such as
//                SIGSEGV or SIGKILL, is never kFollowsAnother, whatever it printed.
//   last_signal: the last signal that the launcher sent to the worker; nullopt if it sent none.
//   exception:   see ProgramError; if not empty, stderr_tail is ignored.
//   stderr_tail: if `exception` is empty, the last lines of stderr_tail are searched instead.
FailureOrigin OriginOf(const ExitInfo& exit, std::optional<int> last_signal, absl::string_view exception,
                       absl::string_view stderr_tail);

}  // namespace ddprun
