// Gives a recording of a coordinator (ddprun --record=FILE) to another one, step by step, and checks that the same
// comes of it. docs/recording.md has the file's format.
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
  std::string difference;  // the first step of which something else came; empty: none
  std::string broken;      // the first rule of RoundRules that does not hold; empty: all hold
};

// `print`: print each step on stdout, with what comes of it. `again` gets the steps with the outcomes of this run.
//   Checks the rules of tests/sim/round_rules.h but those that need to know which workers run.
//   Errors: kInvalidArgument: not a recording, or of another format, or a step that cannot be.
absl::StatusOr<ReplayResult> Replay(std::istream& recording, bool print, StepSink again = {});

}  // namespace ddprun::sim
