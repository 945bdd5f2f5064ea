// A clock for deadlines that other hosts rely on. Unlike std::chrono::steady_clock, this clock advances while
// the host is suspended.
#pragma once

#include <time.h>

#include <chrono>

namespace ddprun {

// CLOCK_BOOTTIME. Meets the TrivialClock requirements of std::chrono.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock, duration>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);  // cannot fail: CLOCK_BOOTTIME has existed since Linux 2.6.39
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

// A point on the BootClock of this host. Points on the clocks of different hosts must not be compared.
using BootTime = BootClock::time_point;

}  // namespace ddprun
