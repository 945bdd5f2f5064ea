// Interface for observers of an agent: event log, metrics, health check.
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

// An event of a watchdog timer, in torchrun's terms.
struct WatchdogNote {
  absl::string_view what;  // "watchdog started", "timer expired", "kill worker process", "watchdog stopped"
  pid_t pid = 0;           // 0: no process, and the fields below are empty
  absl::string_view scope = {};
  double expires = 0;  // seconds since 1970
  int signo = 0;
};

struct AgentEnd {
  EndReason reason = {};
  std::string why = {};                      // one sentence; empty: the job succeeded
  std::vector<FailureRecord> failures = {};  // failures of this node's workers in the last round
};

// Default implementations do nothing.
//   Threads: all methods are called on the agent's loop and must not block.
class AgentObserver {
 public:
  virtual ~AgentObserver() = default;

  // The node waits for a round: it has joined, or is ready for the next one.
  virtual void OnWaiting(TimePoint) {}
  // The node is assigned to a round; its workers are started next.
  virtual void OnRound(const Assignment&, TimePoint) {}
  virtual void OnWorkerStarted(LocalRank, pid_t, TimePoint) {}
  // A worker has failed, the first to do so in this round.
  virtual void OnFailure(TimePoint) {}
  // The workers are being stopped. Not called if all workers have ended by themselves.
  virtual void OnStopping(TimePoint) {}
  // The workers and their descendants are gone, except `unkillable`: one
  // description for each process that SIGKILL does not end.
  virtual void OnWorkersGone(const std::vector<std::string>& /*unkillable*/, TimePoint) {}
  virtual void OnWatchdog(const WatchdogNote&, TimePoint) {}
  // Called after each step. `alive`: number of workers that have not ended.
  virtual void OnState(AgentMachine::State, Round, int /*alive*/, TimePoint) {}
  // The full name of this host is known. Called at most once, before OnEnd.
  virtual void OnHostName(const std::string&) {}
  // Called once, last.
  virtual void OnEnd(const AgentEnd&, TimePoint) {}
};

}  // namespace ddprun
