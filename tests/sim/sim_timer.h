// The WakeTimer of a simulated process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/wake_timer.h"
#include "tests/sim/sim_host.h"

namespace ddprun::sim {

// At most one alarm is pending: an alarm that comes too early sets the next one, so a deadline that moves all the
// time costs little. No call comes once it is destroyed.
class SimTimer final : public WakeTimer {
 public:
  // Runs something in the process: later while the process is stopped, never once it has ended.
  using InProcess = std::function<void(std::function<void()>)>;

  SimTimer(SimHost* host, InProcess in_process) : host_(*host), in_process_(std::move(in_process)) {}

  TimePoint Now() const override { return host_.now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    at_ = at;
    wake_ = std::move(wake);
    Arm();
  }

 private:
  void Arm() {
    if (!at_ || (alarm_ && *alarm_ <= *at_)) return;
    alarm_ = at_;
    host_.At(*alarm_, [this, here = std::weak_ptr<bool>(here_), alarm = *alarm_] {
      if (here.expired()) return;
      in_process_([this, here, alarm] {
        if (here.expired() || alarm_ != alarm) return;
        alarm_.reset();
        if (!at_ || Now() < *at_) return Arm();
        at_.reset();
        std::exchange(wake_, nullptr)();
      });
    });
  }

  SimHost& host_;
  const InProcess in_process_;
  std::optional<TimePoint> at_;
  std::function<void()> wake_;
  std::optional<TimePoint> alarm_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
