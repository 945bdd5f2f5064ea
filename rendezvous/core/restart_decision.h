// Decides what a failure costs a job: nothing, a restart, or the job itself. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/failure.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// The furthest step of the workers over all rounds, and the number of restarts since that step last advanced.
class FurthestStep {
 public:
  void Reported(int64_t step);
  // A failure ended a round and a restart was granted.
  void Restarted();

  // nullopt: no worker has reported a step.
  std::optional<int64_t> step() const { return step_; }
  // Consecutive restarts that have not advanced the job beyond step(). 0 if no step was ever reported.
  int vain_restarts() const { return !step_ || further_ ? 0 : restarts_; }

 private:
  std::optional<int64_t> step_;
  bool further_ = false;  // since the last restart
  int restarts_ = 0;      // since the step last advanced
};

enum class Cost {
  kNothing,  // a new round
  kRestart,  // a new round, charged as one restart
  kJob,      // the job ends: no restarts are left, or a restart would not help
};

struct RestartDecision {
  Cost cost = Cost::kNothing;
  CostReason why = {};
};

// Decides the cost of a round whose first cause of failure is `cause`.
//   restarts:   restarts spent so far.
//   furthest:   includes the steps of this round.
//   lost_nodes: number of nodes lost in the same round. A failure that only followed from their loss is free.
RestartDecision DecideRestart(const JobRules& policy, const Failure& cause, int restarts,
                              const FurthestStep& furthest, int lost_nodes);

// Counts, for each host, its lost nodes and the failed rounds whose first cause was on it.
class HostFailures {
 public:
  // Returns the new count.
  int Failed(const std::string& host) { return ++failures_[host]; }
  int failures(const std::string& host) const {
    const auto it = failures_.find(host);
    return it == failures_.end() ? 0 : it->second;
  }

 private:
  std::map<std::string, int> failures_;
};

// Counts consecutive losses of nodes without progress. The first loss has no consequence. Each later loss
// causes a longer pause, since the losses may share a cause (the job kills its nodes, a switch flaps). kMax
// losses end the job.
class LossStreak {
 public:
  static constexpr int kMax = 10;
  // A round that ran for at least this long counts as progress.
  static constexpr Duration kProgress = seconds(60);
  static constexpr Duration kLongestPause = seconds(30);

  // A round that lost nodes has ended; it ran for `ran`. `step` is the furthest step that any worker has
  // reported.
  void Lost(Duration ran, std::optional<int64_t> step);
  int count() const { return count_; }
  // Pause before the next round: 0 for the first loss, then 1 s, 2 s, 4 s, ... up to kLongestPause.
  Duration pause() const;

 private:
  int count_ = 0;
  std::optional<int64_t> step_;  // at the last loss
};

}  // namespace ddprun
