// torchrun's event log (--event-log-handler=console): the same events, in the same order.
//
//   RENDEZVOUS            the node has joined a round or has failed to; with the time it waited
//   ASSIGN_WORKER_RANKS   directly after RENDEZVOUS: ranks arrive with the round, so the duration is 0
//   START                 for each worker
//   SUCCEEDED, FAILED, TERMINATED
//                         for each worker of the last round, when the agent ends
//   SUCCEEDED             for the agent: it reached the end of the job, even if workers failed
//   FAILED                for the agent: a signal, no rendezvous, a lost coordinator, ...
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
  // `start`: when the agent started. `write` receives whole lines with their newline. Events before
  // OnHostName are held back until then.
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
  // Writes at once, or when the host's name is known. All other fields of the context are captured now.
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
