// Sleeping on a word of memory that processes share.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

#include "base/time.h"

namespace ddprun {

// For loops that poll memory.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when the word changes, at `deadline`, or at any time in between: the caller rechecks in any case.
inline void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, TimePoint deadline) {
  const auto whole = std::chrono::floor<seconds>(deadline.time_since_epoch());
  const timespec until = {.tv_sec = std::max<time_t>(whole.count(), 0),
                          .tv_nsec = (deadline.time_since_epoch() - whole).count()};
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline == TimePoint::max() ? nullptr : &until,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

inline void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddprun
