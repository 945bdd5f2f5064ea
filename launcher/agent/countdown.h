// Reports the remaining time of the last call, for users at a terminal.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/time.h"
#include "base/wake_timer.h"

namespace ddprun {

// Returns the largest mark below `left`; nullopt if there is none. Marks are the remaining times that users
// see: 60, 30, 20, 10, 5, 3, 2 and 1 s.
std::optional<Duration> NextMark(Duration left);

// Reports the remaining time at each mark.
//   Threads: the thread of the timer.
class Countdown {
 public:
  // `say` is called at each mark with the remaining time.
  Countdown(std::unique_ptr<WakeTimer> timer, std::function<void(Duration left)> say)
      : timer_(std::move(timer)), say_(std::move(say)) {}

  // Counts down from `left`; replaces a running countdown.
  void Start(Duration left);
  void Stop() { timer_->Set(std::nullopt, {}); }

 private:
  void SetTimer();

  const std::unique_ptr<WakeTimer> timer_;
  const std::function<void(Duration)> say_;
  TimePoint end_;
};

}  // namespace ddprun
