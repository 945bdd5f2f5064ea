// Says on a terminal how long the last call still lasts.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/time.h"
#include "base/wake_timer.h"

namespace ddprun {

// What is left at the next line when `left` is left now: 60, 30, 20, 10, 5, 3, 2, 1 s. None: no line follows.
std::optional<Duration> NextMark(Duration left);

//   Threads: that of the timer.
class Countdown {
 public:
  // `say` gets the time that is left, at each mark.
  Countdown(std::unique_ptr<WakeTimer> timer, std::function<void(Duration left)> say)
      : timer_(std::move(timer)), say_(std::move(say)) {}

  // It ends after `left`; replaces the one before.
  void Start(Duration left);
  void Stop() { timer_->Set(std::nullopt, {}); }

 private:
  void SetTimer();

  const std::unique_ptr<WakeTimer> timer_;
  const std::function<void(Duration)> say_;
  TimePoint end_;
};

}  // namespace ddprun
