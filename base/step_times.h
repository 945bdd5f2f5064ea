// How long the steps of a worker take, and where the time goes.
#pragma once

#include <optional>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// Means over some successive steps of a worker. What is neither `data` nor `communication` is computing.
struct StepTimes {
  Duration step = {};
  Duration spread = {};  // the standard deviation of the steps
  Duration data = {};    // per step: in WorkerPhase::kLoading
  // Per step: waiting for collective operations; nullopt: unknown.
  std::optional<Duration> communication = {};
  Duration own_spread = {};  // the standard deviation of own(); meaningful with `communication`

  // What the worker itself needs for a step. All ranks end a step together, so that only this tells a slow one from those that
  // wait for it.
  //   REQUIRES: communication.
  Duration own() const { return step - *communication; }

  bool operator==(const StepTimes&) const = default;
};

struct WorkerSteps {
  LocalRank local_rank;
  StepTimes times = {};

  bool operator==(const WorkerSteps&) const = default;
};

}  // namespace ddprun
