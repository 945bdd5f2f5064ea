// What a failure costs a job: a restart, nothing, or the job. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/failure.h"
#include "base/job_rules.h"
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

}  // namespace ddprun
