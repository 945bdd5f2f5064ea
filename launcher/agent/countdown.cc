#include "launcher/agent/countdown.h"

namespace ddprun {

std::optional<Duration> NextMark(Duration left) {
  for (const int mark : {60, 30, 20, 10, 5, 3, 2, 1}) {
    if (left > seconds(mark)) return seconds(mark);
  }
  return std::nullopt;
}

void Countdown::Start(Duration left) {
  end_ = timer_->Now() + left;
  SetTimer();
}

void Countdown::SetTimer() {
  const std::optional<Duration> mark = NextMark(end_ - timer_->Now());
  if (!mark) return Stop();
  timer_->Set(end_ - *mark, [this, mark = *mark] {
    say_(mark);
    SetTimer();
  });
}

}  // namespace ddprun
