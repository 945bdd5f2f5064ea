// A condition variable with deadlines on the monotonic clock.
#pragma once

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/check.h"
#include "base/time.h"

namespace ddprun {

// Like std::condition_variable, whose deadlines on the monotonic clock need glibc 2.30 or later.
//   Threads: as std::condition_variable.
class SteadyCondition {
 public:
  SteadyCondition() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    DDPRUN_CHECK(pthread_cond_init(&condition_, &attributes) == 0, "no memory for a condition variable");
    pthread_condattr_destroy(&attributes);
  }
  ~SteadyCondition() { pthread_cond_destroy(&condition_); }
  SteadyCondition(const SteadyCondition&) = delete;
  SteadyCondition& operator=(const SteadyCondition&) = delete;

  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

  // REQUIRES of all waits: the calling thread holds `lock`.
  template <typename Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate done) {
    while (!done()) pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }
  // Returns done() at its end, which is at the deadline if done() has not become true before.
  template <typename Predicate>
  bool wait_until(std::unique_lock<std::mutex>& lock, TimePoint deadline, Predicate done) {
    const Duration since_boot = std::max(deadline.time_since_epoch(), Duration::zero());
    const auto whole = std::chrono::floor<seconds>(since_boot);
    const timespec until = {.tv_sec = whole.count(),
                            .tv_nsec = std::chrono::nanoseconds(since_boot - whole).count()};
    while (!done()) {
      if (pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &until) != 0) return done();
    }
    return true;
  }
  template <typename Predicate>
  bool wait_for(std::unique_lock<std::mutex>& lock, Duration limit, Predicate done) {
    return wait_until(lock, std::chrono::steady_clock::now() + limit, done);
  }

 private:
  pthread_cond_t condition_;
};

}  // namespace ddprun
