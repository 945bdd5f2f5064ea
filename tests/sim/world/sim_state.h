// The state that simulated workers train, and the rules about it: no step is torn, and none is lost that a worker has
// committed while another one survives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "worker_sdk/recover/decide_step.h"
#include "worker_sdk/recover/state_history.h"

namespace ddprun::sim {

// The value after `step`, if the workers of `round` compute it from `before`. A step that is computed again in another
// round has another value, so that ranks which do not agree on the steps that count have different values.
inline uint64_t NextValue(uint64_t before, int64_t step, Round round) {
  uint64_t h = before;
  for (const uint64_t x : {static_cast<uint64_t>(step), static_cast<uint64_t>(round.value())}) {
    h = (h ^ x) * 0x9e3779b97f4a7c15;
    h ^= h >> 29;
  }
  return h;
}

// What a worker process keeps as long as it lives, over all rounds that it survives.
struct SimProcess {
  StateHistory history = {};
  int64_t step = -1;  // committed steps in its state; -1: it has no state
  uint64_t value = 0;
  int64_t prepared = -1;  // the step that it has prepared; -1: none
  uint64_t prepared_value = 0;

  // REQUIRES: a step is prepared.
  void Commit() {
    step = prepared;
    value = prepared_value;
    prepared = -1;
  }
  Standing StandingOn(int64_t node) const {
    return {.previous_round = history.previous_round(), .step = step, .prepared = prepared, .node = node};
  }
};

struct SurvivalCounts {
  int64_t parked = 0;
  int64_t survived = 0;   // workers that went on with their state in another round
  int64_t recovered = 0;  // workers that committed a step of the round before
};

// Checks the states of all workers of a simulation.
class StateRules {
 public:
  using Broken = std::function<void(const std::string& rule)>;
  explicit StateRules(Broken broken) : broken_(std::move(broken)) {}

  // A snapshot of `step` was published; a writer that no longer runs may have written it.
  void Published(int64_t step, uint64_t value) { snapshots_[step] = value; }
  uint64_t ValueOfSnapshot(int64_t step) const {
    const auto it = snapshots_.find(step);
    return it == snapshots_.end() ? 0 : it->second;
  }

  // The workers of a round go on from `step` and `value`. Returns the number of this start, which the other calls need:
  // a job that is started again counts its rounds from 0.
  //   survivors: some worker of the round has state of the round before.
  int64_t Start(Round round, int64_t step, uint64_t value, bool survivors) {
    if (survivors && step < furthest_) {
      broken_(absl::StrCat("round ", round.value(), " continues from step ", step, ", but step ", furthest_,
                           " was committed before, and a worker has survived"));
    }
    if (step < stopped_) {
      broken_(absl::StrCat("round ", round.value(), " continues from step ", step,
                           ", but the workers have stopped after step ", stopped_));
    }
    round_ = round;
    step_ = furthest_ = step;
    value_ = value;
    return ++start_;
  }
  // A worker goes on from its state.
  void Continues(int64_t start, const SimProcess& process) const {
    if (start != start_) return;
    if (process.step != step_) {
      broken_(absl::StrCat("workers of round ", round_.value(), " continue from steps ", step_, " and ",
                           process.step));
    } else if (process.value != value_) {
      broken_(absl::StrCat("workers of round ", round_.value(), " continue from step ", step_,
                           " with different values: a step is torn"));
    }
  }
  void Committed(int64_t start, const SimProcess& process) {
    if (start == start_) furthest_ = std::max(furthest_, process.step);
  }
  // All workers of the round stop after `step`, of which there is a snapshot.
  void Stopped(int64_t start, int64_t step) {
    if (start != start_) return;
    if (furthest_ > step)
      broken_(absl::StrCat("workers stop after step ", step, ", but step ", furthest_, " was committed"));
    stopped_ = std::max(stopped_, step);
  }

 private:
  const Broken broken_;
  std::map<int64_t, uint64_t> snapshots_;
  int64_t furthest_ =
      -1;                 // the highest step that a worker has committed since workers last loaded a snapshot
  int64_t stopped_ = -1;  // the highest step after which workers have stopped
  // The last start, and from what.
  int64_t start_ = 0;
  Round round_;
  int64_t step_ = -1;
  uint64_t value_ = 0;
};

}  // namespace ddprun::sim
