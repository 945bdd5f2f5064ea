// Writes the same events as torchrun's event log (--event-log-handler=console), in the same order.
//
//   RENDEZVOUS            when the node has joined a round or failed to join one; contains the waiting time
//   ASSIGN_WORKER_RANKS   directly after RENDEZVOUS; its duration is 0, because the assignment of the round
//                         already contains the ranks
//   START                 for each worker that is started
//   SUCCEEDED, FAILED, TERMINATED
//                         for each worker of the last round, when the agent ends
//   SUCCEEDED             for the agent, if the job has succeeded or failed, or if the node was drained
//   FAILED                for the agent otherwise, for example after a signal or a failed rendezvous
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
  // `start` is the time at which the agent started. `write` receives whole lines, including the newline.
  // Events that occur before OnHostName are written when OnHostName is called.
  JobEvents(const LaunchConfig& config, TimePoint start, std::function<void(const std::string&)> write);

  void OnWaiting(TimePoint now) override;
  void OnRound(const Assignment& assignment, TimePoint now) override;
  void OnWorkerStarted(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnWorkerKept(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnWatchdog(const WatchdogNote& note, TimePoint now) override;
  void OnHostName(const std::string& name) override;
  void OnEnd(const AgentEnd& end, TimePoint now) override;

 private:
  EventWorker WorkerOf(LocalRank local_rank) const;
  void WriteWorkerEnds(const AgentEnd& end);
  void EndRendezvous(TimePoint now);
  // Writes the result of `format` immediately if the host's name is known, otherwise as soon as the name is
  // known. The other fields of the context keep their values from the time of this call.
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
  std::vector<pid_t> pids_;  // indexed by local rank; 0 if the worker has not started
};

}  // namespace ddprun
