// Points in time, for deadlines.
#pragma once

#include <chrono>

namespace ddprun {

using Duration = std::chrono::nanoseconds;
// A point on the monotonic clock of this host.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

}  // namespace ddprun
