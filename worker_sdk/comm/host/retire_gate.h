// Lets threads use what another thread takes away for good.
#pragma once

#include <condition_variable>
#include <mutex>

namespace ddprun {

//   Threads: any.
class RetireGate {
 public:
  // While this object exists and converts to true, Close does not return. Converts to false if Close has returned. A thread
  // may have several.
  class Use {
   public:
    explicit Use(RetireGate& gate) : gate_(gate), entered_(gate.Enter()) {}
    ~Use() {
      if (entered_) gate_.Leave();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    RetireGate& gate_;
    const bool entered_;
  };

  // Blocks until there is no Use. From then on, every Use is false.
  //   REQUIRES: this thread has no Use.
  void Close() {
    std::unique_lock<std::mutex> lock(mu_);
    unused_.wait(lock, [this] { return num_uses_ == 0; });
    closed_ = true;
  }
  bool closed() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return closed_;
  }

 private:
  bool Enter() {
    const std::lock_guard<std::mutex> lock(mu_);
    if (!closed_) ++num_uses_;
    return !closed_;
  }
  void Leave() {
    const std::lock_guard<std::mutex> lock(mu_);
    if (--num_uses_ == 0) unused_.notify_all();
  }

  mutable std::mutex mu_;
  std::condition_variable unused_;
  int num_uses_ = 0;
  bool closed_ = false;
};

}  // namespace ddprun
