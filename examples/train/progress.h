// How fast training goes, and when it will be done.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"

namespace ddprun::train {

// Pure: time is an argument.
class Progress {
 public:
  // Training goes from `first_step` done updates to `last_step`, each with `tokens_per_step`.
  Progress(int64_t first_step, int64_t last_step, int64_t tokens_per_step, TimePoint now);

  // An update is done. REQUIRES: now never decreases.
  void StepDone(TimePoint now);

  // Over the last update.
  [[nodiscard]] double StepTokensPerSecond() const;

  // "step=40/400 loss=2.3456 tokens/s=51234 left=12s"; tokens/s over the updates since the line before.
  std::string Line(double loss, TimePoint now);

 private:
  const int64_t first_step_, last_step_, tokens_per_step_;
  const TimePoint begin_;
  int64_t step_;
  TimePoint step_begin_;
  Duration step_time_{};  // of the last update
  int64_t line_step_;     // when the last line was made
  TimePoint line_time_;
};

// "45s", "3m20s", "2h05m", "3d04h".
std::string ForPeople(Duration duration);

}  // namespace ddprun::train
