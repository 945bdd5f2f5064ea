// The interface for observers of an agent, such as the event log, the metrics and the health check.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/assignment.h"
#include "base/ids.h"
#include "base/time.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/cli/exit_code.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

// An event of the watchdog or of one of its timers. `what` is torchrun's name for the event.
struct WatchdogNote {
  absl::string_view what;  // "watchdog started", "timer expired", "kill worker process", "watchdog stopped"
  pid_t pid = 0;           // 0: no process, and the fields below are empty
  absl::string_view scope = {};
  double expires = 0;  // seconds since 1970
  int signo = 0;
};

struct AgentEnd {
  EndReason reason = {};
  std::string why = {};                      // one sentence; empty if the job succeeded
  std::vector<FailureRecord> failures = {};  // failures of this node's workers in the last round
};

// Default implementations do nothing.
//   Threads: all methods are called on the agent's thread and must not block.
class AgentObserver {
 public:
  virtual ~AgentObserver() = default;

  // The node waits for a round: it has joined, or is ready for the next one.
  virtual void OnWaiting(TimePoint) {}
  // The node is assigned to a round; its workers are started next.
  virtual void OnRound(const Assignment&, TimePoint) {}
  virtual void OnWorkerStarted(LocalRank, pid_t, TimePoint) {}
  // A worker that has survived the round before takes part in this round. Called directly after OnRound.
  virtual void OnWorkerKept(LocalRank, pid_t, TimePoint) {}
  // A worker has failed. Called only for the first failure of a round.
  virtual void OnFailure(TimePoint) {}
  // The workers are being stopped. Not called if all workers have exited on their own.
  virtual void OnStopping(TimePoint) {}
  // The workers and their descendants have exited, except workers that survive. `unkillable` describes the exceptions: one
  // entry for each process that has not exited after SIGKILL. Called again if a worker that was to survive has exited.
  // Not called if all workers survive.
  virtual void OnWorkersGone(const std::vector<std::string>& /*unkillable*/, TimePoint) {}
  virtual void OnWatchdog(const WatchdogNote&, TimePoint) {}
  // Called after each step of the AgentMachine. `alive`: number of workers that have not ended.
  virtual void OnState(AgentMachine::State, Round, int /*alive*/, TimePoint) {}
  // The lookup of this host's full name has ended. If the lookup failed, the argument is the short name.
  // Called at most once, before OnEnd.
  virtual void OnHostName(const std::string&) {}
  // The agent ends. Called once; no other call follows.
  virtual void OnEnd(const AgentEnd&, TimePoint) {}
};

}  // namespace ddprun
