#include "rendezvous/core/failure_history.h"

#include <algorithm>

namespace ddprun {

void LossStreak::Lost(Duration ran, std::optional<int64_t> step) {
  const bool further = step && (!step_ || *step > *step_);
  if (further || ran >= kProgress) count_ = 0;
  ++count_;
  step_ = step;
}

Duration LossStreak::pause() const {
  if (count_ < 2) return Duration::zero();
  return std::min<Duration>(seconds(1) * (int64_t{1} << std::min(count_ - 2, 10)), kLongestPause);
}

}  // namespace ddprun
