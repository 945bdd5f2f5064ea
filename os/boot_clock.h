// A clock that, unlike steady_clock, advances while the machine is suspended. For deadlines on which other
// hosts rely.
#pragma once

#include <time.h>

#include <chrono>

namespace ddprun {

// CLOCK_BOOTTIME; a TrivialClock of std::chrono.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock, duration>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);  // cannot fail: available since Linux 2.6.39
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

// Values from different hosts are never compared.
using BootTime = BootClock::time_point;

}  // namespace ddprun
