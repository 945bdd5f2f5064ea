// torchrun's event log (--event-log-handler=console): the same events, in the same order.
//
//   RENDEZVOUS            the node has joined a round or failed to join one; has the time that it waited
//   ASSIGN_WORKER_RANKS   directly after RENDEZVOUS; the duration is 0 because ranks arrive with the round
//   START                 for each worker
//   SUCCEEDED, FAILED, TERMINATED
//                         for each worker of the last round, when the agent ends
//   SUCCEEDED             for the agent: the agent reached the end of the job, even if workers failed
//   FAILED                for the agent: a signal, a failed rendezvous, a lost coordinator, ...
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/assignment.h"
#include "base/time.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/config/launch_config.h"
#include "launcher/observers/job_event.h"

namespace ddprun {

class JobEvents : public AgentObserver {
 public:
  // `start`: when the agent started. `write` receives whole lines, including the newline. Events that occur
  // before OnHostName are held back until OnHostName is called.
  JobEvents(const LaunchConfig& config, TimePoint start, std::function<void(const std::string&)> write);

  void OnWaiting(TimePoint now) override;
  void OnRound(const Assignment& assignment, TimePoint now) override;
  void OnWorkerStarted(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnWatchdog(const WatchdogNote& note, TimePoint now) override;
  void OnHostName(const std::string& name) override;
  void OnEnd(const AgentEnd& end, TimePoint now) override;

 private:
  EventWorker WorkerOf(LocalRank local_rank) const;
  void WriteWorkerEnds(const AgentEnd& end);
  void EndRendezvous(TimePoint now);
  // Writes immediately if the host's name is known, otherwise as soon as it is known. All other context
  // fields have their values at the time of the call.
  void WriteWithHost(std::function<std::string(const EventContext&)> format);
  void Write(JobEvent event);

  const std::function<void(const std::string&)> write_;
  const int num_workers_;
  const TimePoint start_;
  EventContext context_;
  bool knows_host_ = false;
  std::vector<std::function<void()>> held_;  // writes that wait for the host's name
  std::optional<TimePoint> waiting_since_;
  std::optional<Assignment> assignment_;
  std::vector<pid_t> pids_;  // by local rank; 0: not started
};

}  // namespace ddprun
