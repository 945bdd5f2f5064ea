// The WakeTimer of a simulated process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wake_timer.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// At most one alarm is armed. An alarm that fires before the deadline arms the next one, so moving the
// deadline is cheap. `wake` is never called after destruction. Checks that the owner handles its deadline
// when it is woken: in a real process, a deadline that stays in the past would be a busy loop.
class SimTimer final : public WakeTimer {
 public:
  // Runs a function in the process. Defers the call while the process is stopped, and drops it after the
  // process has exited.
  using InProcess = std::function<void(std::function<void()>)>;

  SimTimer(SimHost* host, Trace* trace, InProcess in_process)
      : host_(*host), trace_(*trace), in_process_(std::move(in_process)) {}

  TimePoint Now() const override { return host_.now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    at_ = at;
    wake_ = std::move(wake);
    Arm();
  }

 private:
  // Limit on consecutive wake-ups for a deadline that had already passed at the previous wake-up.
  static constexpr int kMaxRepeats = 10;

  void Arm() {
    if (!at_ || (alarm_ && *alarm_ <= *at_)) return;
    alarm_ = at_;
    host_.At(*alarm_, [this, here = std::weak_ptr<bool>(here_), alarm = *alarm_] {
      if (here.expired()) return;
      in_process_([this, here, alarm] {
        if (here.expired() || alarm_ != alarm) return;
        alarm_.reset();
        if (!at_ || Now() < *at_) return Arm();
        repeats_ = *at_ <= last_wake_ ? repeats_ + 1 : 0;
        if (repeats_ > kMaxRepeats) {
          return trace_.Broken(host_.sim_now(),
                               absl::StrCat("a process on ", host_.name(), " was woken ", repeats_,
                                            " times for a deadline that has passed"));
        }
        last_wake_ = Now();
        at_.reset();
        std::exchange(wake_, nullptr)();
      });
    });
  }

  SimHost& host_;
  Trace& trace_;
  const InProcess in_process_;
  std::optional<TimePoint> at_;
  std::function<void()> wake_;
  std::optional<TimePoint> alarm_;
  TimePoint last_wake_ = TimePoint::min();
  int repeats_ = 0;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
