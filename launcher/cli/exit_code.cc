#include "launcher/cli/exit_code.h"

#include <sysexits.h>

#include <csignal>

namespace ddprun {
namespace {

bool IsSuccess(EndReason reason) { return reason == EndReason::kSucceeded || reason == EndReason::kDrained; }

// True if the same job may succeed when it is started again.
bool WorthAnotherTry(EndReason reason) {
  switch (reason) {
    case EndReason::kPreempted:
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

EndReason EndReasonOf(Dismissal dismissal) {
  switch (dismissal) {
    case Dismissal::kSucceeded:
      return EndReason::kSucceeded;
    case Dismissal::kFailed:
      return EndReason::kJobFailed;
    case Dismissal::kJoinTimeout:
      return EndReason::kJoinTimeout;
    case Dismissal::kEvicted:
      return EndReason::kEvicted;
    case Dismissal::kRejected:
      return EndReason::kRejected;
    case Dismissal::kStopped:
      return EndReason::kStopped;
    case Dismissal::kDrained:
      return EndReason::kDrained;
    case Dismissal::kCoordinatorEnded:
      return EndReason::kCoordinatorEnded;
    case Dismissal::kPreempted:
      return EndReason::kPreempted;
    case Dismissal::kMoved:
      return EndReason::kCoordinatorLost;  // if no other one is found
  }
  return EndReason::kBroken;
}

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
         "  this node was rejected or could not start            1            1\n"
         "  the job was stopped on request                       1            1\n"
         "  the launcher received SIGINT or SIGQUIT              1            1\n"
         "  the launcher received SIGTERM or another signal      1           75\n"
         "  this node, or the coordinator's, is pre-empted        1           75\n"
         "  too few nodes joined, or no coordinator was found    1           75\n"
         "  the coordinator was lost, or its launcher exited     1           75\n"
         "  this node was evicted and could not rejoin           1           75\n"
         "  this node failed, e.g. its helper process died       1           75\n"
         "  usage error                                          2            2\n"
         "75 means that the same job may succeed if it is started again; the scheduler should requeue it.\n";
}

}  // namespace ddprun
