// torchrun's event log (--event-log-handler=console): the same events, in the same order.
//
//   RENDEZVOUS            the node has its place in a round, or will not get one; with how long it waited
//   ASSIGN_WORKER_RANKS   right after it: the ranks have come with the round, so this takes no time
//   START                 of each worker
//   SUCCEEDED, FAILED, TERMINATED
//                         of each worker of the last round, at the end of the agent
//   SUCCEEDED             of the agent: it came to the job's end, even if workers failed
//   FAILED                of the agent: a signal, no rendezvous, a lost coordinator, ...
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
  // `write` gets whole lines with their ends, none before the host's name is known. `start`: of the agent.
  JobEvents(const LaunchConfig& config, TimePoint start, std::function<void(const std::string&)> write);

  void OnWaiting(TimePoint now) override;
  void OnRound(const Assignment& assignment, TimePoint now) override;
  void OnWorkerStarted(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnWatchdog(const WatchdogNote& note, TimePoint now) override;
  void OnHostName(const std::string& name) override;
  void OnEnd(const AgentEnd& end, TimePoint now) override;

 private:
  EventWorker WorkerOf(LocalRank local_rank) const;
  void EndOfWorkers(const AgentEnd& end);
  void EndRendezvous(TimePoint now);
  // Now, or as soon as the host's name is known; all else in it is as it is now.
  void WriteWithHost(std::function<std::string(const EventContext&)> format);
  void Write(JobEvent event);

  const std::function<void(const std::string&)> write_;
  const int num_workers_;
  const TimePoint start_;
  EventContext context_;
  bool knows_host_ = false;
  std::vector<std::function<void()>> held_;  // until it does
  std::optional<TimePoint> waiting_since_;
  std::optional<Assignment> assignment_;
  std::vector<pid_t> pids_;  // by local rank; 0: not started
};

}  // namespace ddprun
