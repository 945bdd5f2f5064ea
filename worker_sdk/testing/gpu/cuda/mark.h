// A point in a stream.
#pragma once

#include <condition_variable>
#include <mutex>

namespace ddprun::stand_in {

//   Threads: safe.
class Mark {
 public:
  void Set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool IsSet() {
    std::lock_guard lock(mutex_);
    return set_;
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace ddprun::stand_in
