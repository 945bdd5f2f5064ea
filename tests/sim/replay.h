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
  bool whole = true;       // false: the file ends within a step, which was not replayed
  std::string difference;  // describes the first step whose outcome differs; empty: all outcomes match
  std::string broken;      // the first violated rule of RoundRules; empty: none
};

// Replays `recording` and checks RoundRules, except for the rules that depend on which workers run.
//   `print`: whether each step and its outcome are printed on stdout.
//   `again`: receives the steps with the outcomes of this run; may be empty.
//   Errors: kInvalidArgument: `recording` is not a recording, has another format or protocol version, or
//           contains an invalid step.
absl::StatusOr<ReplayResult> Replay(std::istream& recording, bool print, StepSink again = {});

}  // namespace ddprun::sim
