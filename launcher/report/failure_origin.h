// Whether a failure is a worker's own, or the launcher's doing, or followed from that of another worker.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/failure.h"

namespace ddprun {

// kStopped: it was told to end, and ended by that signal, or by an exit code without an exception.
// kFollowsAnother: its own words are those of a program whose peer has gone: a closed or reset connection of
// a collective, an aborted communicator, a store that is no longer there. An error that may be an after-effect
// (a timeout: the others may have waited for this worker) counts as one, too: if all failures are of this kind,
// the earliest is the cause.
//   exit:        how it ended. One that never started, or was ended by a signal that says itself what was
//                wrong (SIGSEGV, SIGKILL, ...), follows from no other, whatever it printed before.
//   last_signal: the last signal that the launcher had sent it; none: none.
//   exception:   as ProgramError; decides alone when not empty.
//   stderr_tail: else its last lines decide.
FailureOrigin OriginOf(const ExitInfo& exit, std::optional<int> last_signal, absl::string_view exception,
                       absl::string_view stderr_tail);

}  // namespace ddprun
