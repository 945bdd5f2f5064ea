// Classifies a failure: the worker's own, caused by the launcher, or caused by another worker's failure.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/failure.h"

namespace ddprun {

// Returns kStopped if the launcher sent the worker a signal and the worker then ended in one of these ways:
// it was terminated by that signal or by SIGTERM, it exited without an exception, it exited with the code
// 128 + signal number, or it never started because its start was cancelled.
//
// Otherwise returns kFollowsAnother if the worker's error shows that the worker lost a peer. Examples are a
// closed or reset connection of a collective, an aborted communicator and an unreachable store. Ambiguous
// errors are included: a timeout may also mean that the other ranks waited for this worker. If all failures
// of a round are kFollowsAnother, the earliest of them is the cause.
//
// Otherwise returns kOwn.
//   exit:        how the worker ended. If the worker never started, or was killed by a signal such as SIGSEGV
//                or SIGKILL, the result is not kFollowsAnother.
//   last_signal: the last signal that the launcher sent to the worker; nullopt if it sent none.
//   exception:   the result of ProgramError for the worker's output.
//   stderr_tail: if `exception` is empty, the last lines of stderr_tail are searched for errors instead.
FailureOrigin OriginOf(const ExitInfo& exit, std::optional<int> last_signal, absl::string_view exception,
                       absl::string_view stderr_tail);

}  // namespace ddprun
