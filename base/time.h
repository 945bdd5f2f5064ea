// Time as the pure machines see it: a point on somebody's monotonic clock, given to them as an argument.
#pragma once

#include <chrono>

namespace ddprun {

using Duration = std::chrono::nanoseconds;
// Of std::chrono::steady_clock in a shell, of SimClock in tests. Never compared between hosts.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whole milliseconds, rounded up, so that a wait never ends before its deadline.
inline int64_t ToMillis(Duration d) { return std::chrono::ceil<milliseconds>(d).count(); }

// The expiry times of periodic timers.

// The next multiple of `period` on `now`'s clock: timers of a process that repeat with one period expire
// together, and wake it once.
inline TimePoint NextTick(TimePoint now, Duration period) {
  return now + period - now.time_since_epoch() % period;
}

}  // namespace ddprun
