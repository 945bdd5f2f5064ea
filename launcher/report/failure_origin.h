// Classifies a failure: the worker's own, caused by the launcher, or caused by another worker's failure.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/failure.h"

namespace ddprun {

// kStopped: the launcher sent it a signal, and it ended by that signal or by an exit code without an
// exception.
// kFollowsAnother: its error is that of a program that lost a peer: a closed or reset connection of a
// collective, an aborted communicator, an unreachable store. An error that is only possibly an after-effect,
// such as a timeout (the others may have waited for this worker), counts as well: if all failures are of this
// kind, the earliest is the cause.
//   exit:        how it ended. A worker that never started, or was killed by a signal that is a cause by
//                itself (SIGSEGV, SIGKILL, ...), follows from no other, whatever it printed before.
//   last_signal: the last signal that the launcher sent it; nullopt: none.
//   exception:   see ProgramError; if not empty, stderr_tail is ignored.
//   stderr_tail: its last lines decide if `exception` is empty.
FailureOrigin OriginOf(const ExitInfo& exit, std::optional<int> last_signal, absl::string_view exception,
                       absl::string_view stderr_tail);

}  // namespace ddprun
