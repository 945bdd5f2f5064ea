// Decides whether a failure is free, costs a restart, or ends the job. Pure.
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
  // A failure ended a round, and a restart was granted.
  void Restarted();

  // Returns nullopt if no worker has reported a step.
  std::optional<int64_t> step() const { return step_; }
  // Returns the number of consecutive restarts that have not advanced the job beyond step(). Returns 0 if no
  // worker has reported a step.
  int vain_restarts() const { return !step_ || further_ ? 0 : restarts_; }

  // The parts of this value, for its codec.
  struct Parts {
    std::optional<int64_t> step = {};
    bool further = false;
    int restarts = 0;
  };
  Parts parts() const { return {step_, further_, restarts_}; }
  static FurthestStep From(const Parts& parts);
  bool operator==(const FurthestStep&) const = default;

 private:
  std::optional<int64_t> step_;
  bool further_ = false;  // the step has advanced since the last restart
  int restarts_ = 0;      // number of restarts since the step last advanced
};

enum class Cost {
  kNothing,  // a new round; no restart is charged
  kRestart,  // a new round; one restart is charged
  kJob,      // the job ends: no restarts are left, or a restart would not help
};

struct RestartDecision {
  Cost cost = Cost::kNothing;
  CostReason why = {};
};

// Decides the cost of a round whose first cause of failure is `cause`.
//   restarts:   number of restarts charged before this round.
//   furthest:   includes the steps of this round.
//   lost_nodes: number of nodes lost in the same round. A failure that only follows from their loss is free.
RestartDecision DecideRestart(const JobRules& policy, const Failure& cause, int restarts,
                              const FurthestStep& furthest, int lost_nodes);

// Counts the failures of each host: its lost nodes, and failed rounds whose first cause was on the host.
class HostFailures {
 public:
  // Returns the new count.
  int Failed(const std::string& host) { return ++failures_[host]; }
  int failures(const std::string& host) const {
    const auto it = failures_.find(host);
    return it == failures_.end() ? 0 : it->second;
  }

  const std::map<std::string, int>& all() const { return failures_; }
  static HostFailures From(std::map<std::string, int> failures);
  bool operator==(const HostFailures&) const = default;

 private:
  std::map<std::string, int> failures_;
};

// Counts consecutive rounds that lost nodes and made no progress. The first such round has no consequence.
// Each later one causes a longer pause, because the losses may have a common cause: the job itself may crash
// the nodes, or a switch may be flapping. The job ends after kMax such rounds.
class LossStreak {
 public:
  static constexpr int kMax = 10;
  // A round that ran for at least this long counts as progress.
  static constexpr Duration kProgress = seconds(60);
  static constexpr Duration kLongestPause = seconds(30);

  // A round that lost nodes has ended after running for `ran`. `step` is the furthest step that any worker
  // has reported in any round.
  void Lost(Duration ran, std::optional<int64_t> step);
  int count() const { return count_; }
  // Returns the pause before the next round: 0 for the first loss, then 1 s, 2 s, 4 s, ..., at most
  // kLongestPause.
  Duration pause() const;

  std::optional<int64_t> step() const { return step_; }
  static LossStreak From(int count, std::optional<int64_t> step);
  bool operator==(const LossStreak&) const = default;

 private:
  int count_ = 0;
  std::optional<int64_t> step_;  // the furthest step at the last loss
};

}  // namespace ddprun
