// A one-shot event that threads can wait for.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>

#include "base/time.h"

namespace ddprun {

// Deadlines are on the monotonic clock. absl::Mutex waits on the wall clock, which may step, and
// std::condition_variable needs glibc 2.30 to wait on the monotonic clock; hence a futex.
//   Threads: any. A thread that has observed the event may destroy it.
class Event {
 public:
  void Set() {
    set_.store(1);
    // A waiter may already have destroyed this event. The kernel uses only its address. If another futex is
    // now at that address, its waiters get a spurious wake-up, which every waiter tolerates.
    Futex(FUTEX_WAKE, INT_MAX, nullptr);
  }
  void Wait() {
    while (set_.load() == 0) Futex(FUTEX_WAIT_BITSET, 0, nullptr);
  }
  // Returns false if `deadline` passes first.
  bool WaitUntil(TimePoint deadline) {
    const Duration since_boot = std::max(deadline.time_since_epoch(), Duration::zero());
    const auto whole = std::chrono::floor<seconds>(since_boot);
    const timespec until = {.tv_sec = whole.count(), .tv_nsec = (since_boot - whole).count()};
    while (set_.load() == 0) {
      if (Futex(FUTEX_WAIT_BITSET, 0, &until) != 0 && errno == ETIMEDOUT) break;
    }
    return set_.load() != 0;
  }

 private:
  // FUTEX_WAIT_BITSET takes a point in time on CLOCK_MONOTONIC; FUTEX_WAIT would take a duration.
  long Futex(int operation, uint32_t value, const timespec* until) {
    return syscall(SYS_futex, &set_, operation | FUTEX_PRIVATE_FLAG, value, until, nullptr,
                   FUTEX_BITSET_MATCH_ANY);
  }

  std::atomic<uint32_t> set_{0};
};

}  // namespace ddprun
