// Whether a worker failed only because another one had: its own words say so.
#pragma once

#include "absl/strings/string_view.h"
#include "base/exit_info.h"

namespace ddprun {

// True when the worker's own words are those of a program whose peer has gone: a closed or reset connection
// of a collective, an aborted communicator, a store that is no longer there. Such a failure is not the cause
// of others. An error that merely could be an after-effect (a timeout: the others may have waited for this
// one) is taken for one, too: where all say so, the earliest is the cause all the same.
//   exit:        how it ended. One that never started, or was ended by a signal that says itself what was
//                wrong (SIGSEGV, SIGKILL, ...), is never an after-effect, whatever it printed before.
//   exception:   as ProgramError; decides alone when not empty.
//   stderr_tail: else its last lines decide.
bool IsAfterEffect(const ExitInfo& exit, absl::string_view exception, absl::string_view stderr_tail);

}  // namespace ddprun
