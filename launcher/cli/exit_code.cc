#include "launcher/cli/exit_code.h"

#include <sysexits.h>

#include <csignal>

namespace ddprun {
namespace {

bool IsSuccess(EndReason reason) { return reason == EndReason::kSucceeded || reason == EndReason::kDrained; }

// True if the cause may not recur in the next run.
bool WorthAnotherTry(EndReason reason) {
  switch (reason) {
    case EndReason::kTerminated:
    case EndReason::kJoinTimeout:
    case EndReason::kCoordinatorLost:
    case EndReason::kCoordinatorEnded:
    case EndReason::kEvicted:
    case EndReason::kBroken:
      return true;
    case EndReason::kSucceeded:
    case EndReason::kDrained:
    case EndReason::kJobFailed:
    case EndReason::kRejected:
    case EndReason::kStopped:
    case EndReason::kInterrupted:
      return false;
  }
  return false;
}

}  // namespace

EndReason ReasonOfSignal(int signo) {
  return signo == SIGINT || signo == SIGQUIT ? EndReason::kInterrupted : EndReason::kTerminated;
}

int ExitCodeOf(EndReason reason, ExitCodes codes) {
  if (IsSuccess(reason)) return 0;
  return codes == ExitCodes::kScheduler && WorthAnotherTry(reason) ? EX_TEMPFAIL : 1;
}

std::string ExitCodeHelp() {
  return "Exit codes:\n"
         "                                      --exit-codes=torchrun   =scheduler\n"
         "  the job succeeded                                    0            0\n"
         "  this node was drained                                0            0\n"
         "  the job failed because of its workers                1            1\n"
         "  this node does not fit the job, or cannot start      1            1\n"
         "  the job was stopped on request; SIGINT, SIGQUIT      1            1\n"
         "  SIGTERM, SIGHUP                                      1           75 (requeue)\n"
         "  too few nodes joined; no coordinator found           1           75\n"
         "  the coordinator was lost, or its launcher exited     1           75\n"
         "  this node was evicted and could not rejoin           1           75\n"
         "  this node failed: its warden was killed              1           75\n"
         "  usage error                                          2            2\n";
}

}  // namespace ddprun
