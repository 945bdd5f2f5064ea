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

// An event is set once and never reset. Deadlines are on the monotonic clock. The class uses a futex,
// because absl::Mutex waits on the wall clock, which may step, and std::condition_variable can wait on the
// monotonic clock only with glibc 2.30 or later.
//   Threads: any. After Wait returns, or WaitUntil returns true, the caller may destroy the event, even if
//            Set has not returned yet.
class Event {
 public:
  void Set() {
    // A waiter may destroy this event as soon as it is set. The kernel then uses only the event's address. If that
    // address now belongs to another futex, its waiters get a spurious wake-up, which every user of a futex must
    // tolerate.
    if (state_.exchange(kSet) == kAwaited) Futex(FUTEX_WAKE, INT_MAX, nullptr);
  }
  bool IsSet() const { return state_.load() == kSet; }
  void Wait() {
    while (MustWait()) Futex(FUTEX_WAIT_BITSET, kAwaited, nullptr);
  }
  // Waits until the event is set or `deadline` passes. Returns whether the event is set.
  bool WaitUntil(TimePoint deadline) {
    const Duration since_boot = std::max(deadline.time_since_epoch(), Duration::zero());
    const auto whole = std::chrono::floor<seconds>(since_boot);
    const timespec until = {.tv_sec = whole.count(), .tv_nsec = (since_boot - whole).count()};
    while (MustWait()) {
      if (Futex(FUTEX_WAIT_BITSET, kAwaited, &until) != 0 && errno == ETIMEDOUT) break;
    }
    return IsSet();
  }

 private:
  enum State : uint32_t { kUnset, kAwaited, kSet };  // kAwaited: not set, and a thread may be waiting

  // Returns false if the event is set. Otherwise announces a waiter, so that Set makes a system call.
  bool MustWait() {
    uint32_t state = kUnset;
    return state_.compare_exchange_strong(state, kAwaited) || state == kAwaited;
  }

  // `until` is an absolute time on CLOCK_MONOTONIC, as FUTEX_WAIT_BITSET expects. FUTEX_WAIT would take a
  // relative time.
  long Futex(int operation, uint32_t value, const timespec* until) {
    return syscall(SYS_futex, &state_, operation | FUTEX_PRIVATE_FLAG, value, until, nullptr,
                   FUTEX_BITSET_MATCH_ANY);
  }

  std::atomic<uint32_t> state_{kUnset};
};

}  // namespace ddprun
