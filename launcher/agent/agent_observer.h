// What an agent does, for those who only watch: event logs, metrics, the health check.
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

// Something about a timer of the watchdog, in torchrun's words.
struct WatchdogNote {
  absl::string_view what;  // "watchdog started", "timer expired", "kill worker process", "watchdog stopped"
  pid_t pid = 0;           // 0: about no process; then the rest is empty
  absl::string_view scope = {};
  double expires = 0;  // seconds since 1970
  int signo = 0;
};

struct AgentEnd {
  EndReason reason = {};
  std::string why = {};                      // one sentence; empty: the job succeeded
  std::vector<FailureRecord> failures = {};  // of this node's workers in the last round
};

// All are called from the agent's loop and return at once. Each does nothing by default.
class AgentObserver {
 public:
  virtual ~AgentObserver() = default;

  // The node waits for a round: it has joined, or is ready for the next one.
  virtual void OnWaiting(TimePoint) {}
  // It has its place in a round; its workers are started next.
  virtual void OnRound(const Assignment&, TimePoint) {}
  virtual void OnWorkerStarted(LocalRank, pid_t, TimePoint) {}
  // The first failure of a worker of the round.
  virtual void OnFailure(TimePoint) {}
  // Its workers are told to end; not where all have ended by themselves.
  virtual void OnStopping(TimePoint) {}
  // Nothing of them is left. `unkillable`: but these processes, in words.
  virtual void OnWorkersGone(const std::vector<std::string>& /*unkillable*/, TimePoint) {}
  virtual void OnWatchdog(const WatchdogNote&, TimePoint) {}
  // Called after each step; `alive`: workers that have not ended.
  virtual void OnState(AgentMachine::State, Round, int /*alive*/, TimePoint) {}
  // The full name of this host is known. Comes once, before OnEnd.
  virtual void OnHostName(const std::string&) {}
  // Once, last.
  virtual void OnEnd(const AgentEnd&, TimePoint) {}
};

}  // namespace ddprun
