// What a failure costs a job: a restart, nothing, or the job. Pure.
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

// How far the workers have come, over all rounds, and how often they failed since.
class FurthestStep {
 public:
  void Reported(int64_t step);
  // A round ended in a failure that was answered by a restart.
  void Restarted();

  // None: no worker has ever reported one.
  std::optional<int64_t> step() const { return step_; }
  // If a round fails now: so many restarts in a row have not brought the job beyond step().
  int vain_restarts() const { return !step_ || further_ ? 0 : restarts_; }

 private:
  std::optional<int64_t> step_;
  bool further_ = false;  // since the last restart
  int restarts_ = 0;      // since it last got further
};

enum class Cost {
  kNothing,  // a new round
  kRestart,  // a new round, and one restart less
  kJob,      // no new round would help, or none is left
};

struct RestartDecision {
  Cost cost = Cost::kNothing;
  CostReason why = {};
};

// What `cause`, the first cause of a round's end, costs.
//   restarts:   spent so far.
//   furthest:   with this failure.
//   lost_nodes: nodes that were lost in the same round. A failure that only followed from that is free.
RestartDecision DecideRestart(const JobRules& policy, const Failure& cause, int restarts,
                              const FurthestStep& furthest, int lost_nodes);

// What speaks against the hosts of a job, and against going on with it: failures and losses of nodes. Pure.

// How often each host was the first cause of the end of a round.
class HostFailures {
 public:
  // Returns how often by now.
  int Failed(const std::string& host) { return ++failures_[host]; }
  int failures(const std::string& host) const {
    const auto it = failures_.find(host);
    return it == failures_.end() ? 0 : it->second;
  }

 private:
  std::map<std::string, int> failures_;
};

// Losses of nodes in a row without progress: the first costs nothing; the next ones a growing pause, since
// each may have the same cause (the job kills its nodes, a switch flaps); too many end the job.
class LossStreak {
 public:
  static constexpr int kMax = 10;
  // Without steps a round that has run for so long counts as progress.
  static constexpr Duration kProgress = seconds(60);
  static constexpr Duration kLongestPause = seconds(30);

  // A round that ran for `ran` ended because nodes were lost; `step`: the furthest that any worker has
  // reported.
  void Lost(Duration ran, std::optional<int64_t> step);
  int count() const { return count_; }
  // Before the next round: nothing for the first loss, then 1 s, 2 s, 4 s, ...
  Duration pause() const;

 private:
  int count_ = 0;
  std::optional<int64_t> step_;  // at the last loss
};

}  // namespace ddprun
