// The expiry times of periodic timers.
#pragma once

#include "base/time.h"

namespace ddprun {

// The next multiple of `period` on `now`'s clock: timers of a process that repeat with one period expire
// together, and wake it once.
inline TimePoint NextTick(TimePoint now, Duration period) {
  return now + period - now.time_since_epoch() % period;
}

}  // namespace ddprun
