// Something that happens once, and threads that wait for it.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/time.h"

namespace ddprun {

// Deadlines are on the monotonic clock: absl::Mutex would wait by the wall clock, which may step.
//   Threads: any. Who has seen the event may destroy it.
class Event {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }
  // False: `deadline` came first.
  bool WaitUntil(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;  // guarded by mutex_
};

}  // namespace ddprun
