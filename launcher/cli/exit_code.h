// Why the launcher ends, and the exit code that says so.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

enum class EndReason {
  kSucceeded,         // the job
  kDrained,           // this node was taken out of a job that goes on
  kJobFailed,         // the job, by its own workers
  kRejected,          // this node does not fit the job, or cannot begin
  kStopped,           // somebody stopped the job
  kInterrupted,       // SIGINT or SIGQUIT to the launcher
  kTerminated,        // SIGTERM or SIGHUP to the launcher
  kJoinTimeout,       // too few nodes came, or no coordinator
  kCoordinatorLost,   // and not found again
  kCoordinatorEnded,  // the launcher that hosts it, on another node
  kEvicted,           // this node, and it could not come back
  kBroken,            // this node cannot go on: its warden was killed
};

// Of a signal that somebody sent to the launcher.
EndReason ReasonOfSignal(int signo);

// Which of them the launcher speaks: --exit-codes.
enum class ExitCodes {
  kTorchrun,   // 0 or 1
  kScheduler,  // 75 too, EX_TEMPFAIL: the same job, started again, may do better
};

// 0 for a good end, else 1, or 75. A usage error is none of these and always 2.
int ExitCodeOf(EndReason reason, ExitCodes codes);

// The table for --help.
std::string ExitCodeHelp();

}  // namespace ddprun
