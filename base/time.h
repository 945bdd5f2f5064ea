// Durations and points in time. Pure machines do not read a clock. They receive the current time as an
// argument.
#pragma once

#include <chrono>

namespace ddprun {

using Duration = std::chrono::nanoseconds;
// A point on a monotonic clock: std::chrono::steady_clock in production, SimClock in simulations. Points on
// the clocks of different hosts must not be compared.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns `d` in whole milliseconds, rounded up so that a wait never ends before its deadline.
inline int64_t ToMillis(Duration d) { return std::chrono::ceil<milliseconds>(d).count(); }

// Returns the first multiple of `period` after `now`, counted from the epoch of the clock. Timers with the
// same period that use this function expire together, so they wake the process only once.
inline TimePoint NextTick(TimePoint now, Duration period) {
  return now + period - now.time_since_epoch() % period;
}

}  // namespace ddprun
