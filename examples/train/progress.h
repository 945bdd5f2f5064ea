// Training speed and remaining training time.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"

namespace ddprun::train {

// Pure: time is an argument.
class Progress {
 public:
  // Training starts after `first_step` updates and ends after `last_step` updates. Each update processes
  // `tokens_per_step` tokens.
  Progress(int64_t first_step, int64_t last_step, int64_t tokens_per_step, TimePoint now);

  // Records one update.
  //   REQUIRES: now never decreases.
  void StepDone(TimePoint now);

  // Returns the speed during the last update.
  [[nodiscard]] double StepTokensPerSecond() const;

  // Returns a line such as "step=40/400 loss=2.3456 tokens/s=51234 left=12s". tokens/s is the speed since the
  // previous line.
  std::string Line(double loss, TimePoint now);

 private:
  const int64_t first_step_, last_step_, tokens_per_step_;
  const TimePoint begin_;
  int64_t step_;
  TimePoint step_begin_;
  Duration step_time_{};  // of the last update
  int64_t line_step_;     // value of step_ at the last line
  TimePoint line_time_;
};

// Returns a duration such as "45s", "3m20s", "2h05m" or "3d04h".
std::string ForPeople(Duration duration);

}  // namespace ddprun::train
