// The reasons for which the launcher exits, and the exit code for each reason.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/dismissal.h"

namespace ddprun {

enum class EndReason {
  kSucceeded,         // the job succeeded
  kDrained,           // this node was drained; the job continues without it
  kPreempted,         // this node, or that of the coordinator, is pre-empted
  kJobFailed,         // the job failed because of its workers
  kRejected,          // this node was rejected or could not start
  kStopped,           // the job was stopped on request
  kInterrupted,       // the launcher received SIGINT or SIGQUIT
  kTerminated,        // the launcher received SIGTERM or another signal
  kJoinTimeout,       // too few nodes joined, or no coordinator was found
  kCoordinatorLost,   // the coordinator was lost and not found again
  kCoordinatorEnded,  // the launcher that hosts the coordinator on another node exited
  kEvicted,           // this node was evicted and could not rejoin
  kBroken,            // this node cannot continue, for example because its warden was killed
};

// Returns the reason with which an agent ends after `dismissal`.
EndReason EndReasonOf(Dismissal dismissal);
// Returns the end reason of a launcher that received the signal `signo`: kInterrupted or kTerminated.
EndReason ReasonOfSignal(int signo);

// Which exit codes the launcher uses: --exit-codes.
enum class ExitCodes {
  kTorchrun,   // 0 or 1
  kScheduler,  // also 75 (EX_TEMPFAIL): the same job may succeed if it is started again
};

// Returns 0 for kSucceeded and kDrained, and 1 or 75 for all other reasons. Usage errors have no EndReason;
// their exit code is always 2.
int ExitCodeOf(EndReason reason, ExitCodes codes);

// The table of exit codes for --help.
std::string ExitCodeHelp();

}  // namespace ddprun
