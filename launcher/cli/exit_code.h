// Why the launcher exits, and the exit code for each reason.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

enum class EndReason {
  kSucceeded,         // the job succeeded
  kDrained,           // this node was drained; the job continues without it
  kJobFailed,         // the job failed because of its workers
  kRejected,          // this node does not fit the job, or cannot start
  kStopped,           // the job was stopped on request
  kInterrupted,       // SIGINT or SIGQUIT to the launcher
  kTerminated,        // SIGTERM or SIGHUP to the launcher
  kJoinTimeout,       // too few nodes joined, or no coordinator was found
  kCoordinatorLost,   // the coordinator was lost and not found again
  kCoordinatorEnded,  // the launcher that hosts the coordinator, on another node, ended
  kEvicted,           // this node was evicted and could not rejoin
  kBroken,            // this node cannot continue, for example because its warden was killed
};

// The end reason after a signal to the launcher: kInterrupted or kTerminated.
EndReason ReasonOfSignal(int signo);

// Which exit codes are used: --exit-codes.
enum class ExitCodes {
  kTorchrun,   // 0 or 1
  kScheduler,  // also 75 (EX_TEMPFAIL): the same job may succeed if started again
};

// 0 for kSucceeded and kDrained, else 1 or 75. Usage errors have no EndReason; their exit code is always 2.
int ExitCodeOf(EndReason reason, ExitCodes codes);

// The table of exit codes for --help.
std::string ExitCodeHelp();

}  // namespace ddprun
