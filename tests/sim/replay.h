// Replays a recording of a coordinator (ddprun --record=FILE) step by step and compares the outcomes.
// docs/recording.md specifies the file format.
#pragma once

#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "rendezvous/coordinator/recording.h"

namespace ddprun::sim {

struct ReplayResult {
  int64_t steps = 0;
  Duration length{};       // from the first step to the last
  bool whole = true;       // false: the file ends within a step; that step was not replayed
  std::string difference;  // the first step with a different outcome; empty: none
  std::string broken;      // the first violated rule of RoundRules; empty: none
};

// `print`: prints each step and its outcome on stdout. `again` receives the steps with the outcomes of this
// run. Also checks tests/sim/world/round_rules.h, except for rules that depend on which workers run.
//   Errors: kInvalidArgument: not a recording, another format, or an impossible step.
absl::StatusOr<ReplayResult> Replay(std::istream& recording, bool print, StepSink again = {});

}  // namespace ddprun::sim
