// Time for the pure machines: a point on a monotonic clock, passed as an argument.
#pragma once

#include <chrono>

namespace ddprun {

using Duration = std::chrono::nanoseconds;
// From std::chrono::steady_clock in shells, from SimClock in tests. Never compared between hosts.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whole milliseconds, rounded up, so that a wait never ends before its deadline.
inline int64_t ToMillis(Duration d) { return std::chrono::ceil<milliseconds>(d).count(); }

// The next multiple of `period` after `now`. Timers that use it with the same period expire together, so they
// wake the process only once.
inline TimePoint NextTick(TimePoint now, Duration period) {
  return now + period - now.time_since_epoch() % period;
}

}  // namespace ddprun
