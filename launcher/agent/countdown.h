// Shows the remaining time of the last call on a terminal.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/time.h"
#include "base/wake_timer.h"

namespace ddprun {

// The next mark below `left`: 60, 30, 20, 10, 5, 3, 2 or 1 s; nullopt: none is left.
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
