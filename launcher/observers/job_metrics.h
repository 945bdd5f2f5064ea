// Writes torchrun's metrics in the format of torchrun's console handler (--metrics-handler=console):
//   [1795297344.586200][torchelastic]: workers.default.remaining_restarts=1
//
// The metrics have the same names, values and order as in torchrun, with two exceptions. Both exist because
// this launcher does not poll its workers. A state is reported once, when it begins, instead of ten times a
// second. The metric LocalElasticAgent._monitor_workers is not written.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

class JobMetrics : public AgentObserver {
 public:
  //   start:      the time at which the agent started.
  //   wall_clock: returns seconds since 1970.
  //   write:      receives whole lines, including the newline.
  JobMetrics(const LaunchConfig& config, TimePoint start, std::function<double()> wall_clock,
             std::function<void(const std::string&)> write);

  void OnWaiting(TimePoint now) override;
  void OnRound(const Assignment& assignment, TimePoint now) override;
  void OnWorkerStarted(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnWorkerKept(LocalRank local_rank, pid_t pid, TimePoint now) override;
  void OnFailure(TimePoint now) override;
  void OnStopping(TimePoint now) override;
  void OnWorkersGone(const std::vector<std::string>& unkillable, TimePoint now) override;
  void OnEnd(const AgentEnd& end, TimePoint now) override;

 private:
  void Put(absl::string_view name, int64_t value);
  // Writes the metrics that torchrun's @prof decorator writes for a call to `function`.
  void PutCall(absl::string_view function, bool ok, Duration took);
  void PutOfWorkers(absl::string_view name, int64_t value);
  void PutState(absl::string_view state);
  // The workers have been stopped since OnStopping.
  void Stopped(bool ok, TimePoint now);
  int remaining_restarts() const { return max_restarts_ - restart_count_; }

  const std::string role_;
  const int num_workers_;
  const int max_restarts_;
  const TimePoint start_;
  const std::function<double()> wall_clock_;
  const std::function<void(const std::string&)> write_;

  int restart_count_ = 0;
  bool ran_ = false;  // at least one round has started
  std::optional<TimePoint> waiting_since_;
  std::optional<TimePoint> stopping_since_;
  std::optional<TimePoint> restarting_since_;  // start of the restart in progress; nullopt if there is none
  // State of the current round:
  TimePoint round_start_;
  int num_started_ = 0;
  bool failed_ = false;
  bool stopped_ = false;
};

}  // namespace ddprun
