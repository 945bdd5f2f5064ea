// A one-shot event that threads can wait for.
#pragma once

#include <pthread.h>
#include <time.h>

#include <chrono>
#include <mutex>

#include "base/time.h"

namespace ddprun {

// Deadlines are on the monotonic clock. absl::Mutex waits on the wall clock, which may step;
// std::condition_variable requires glibc 2.30 for the monotonic one.
//   Threads: any. A thread that has observed the event may destroy it.
class Event {
 public:
  Event() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~Event() { pthread_cond_destroy(&changed_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    pthread_cond_broadcast(&changed_);
  }
  void Wait() {
    const std::lock_guard lock(mutex_);
    while (!set_) pthread_cond_wait(&changed_, mutex_.native_handle());
  }
  // False: `deadline` passed first.
  bool WaitUntil(TimePoint deadline) {
    const auto whole = std::chrono::floor<seconds>(deadline.time_since_epoch());
    const timespec until = {.tv_sec = whole.count(),
                            .tv_nsec = (deadline.time_since_epoch() - whole).count()};
    const std::lock_guard lock(mutex_);
    while (!set_ && pthread_cond_timedwait(&changed_, mutex_.native_handle(), &until) == 0) {
    }
    return set_;
  }

 private:
  std::mutex mutex_;
  pthread_cond_t changed_;
  bool set_ = false;  // guarded by mutex_
};

}  // namespace ddprun
