// The one timer of a shell around a pure machine, with the clock that the machine's times are on.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"

namespace ddprun {

class WakeTimer {
 public:
  virtual ~WakeTimer() = default;
  virtual TimePoint Now() const = 0;
  // Calls `wake` once, at `at` or soon after, never from within; none: not at all. Replaces the call before.
  virtual void Set(std::optional<TimePoint> at, std::function<void()> wake) = 0;
};

// On std::chrono::steady_clock.
//   Threads: that of `io`. No call comes once it is destroyed.
class AsioWakeTimer final : public WakeTimer {
 public:
  explicit AsioWakeTimer(boost::asio::io_context& io) : timer_(io) {}

  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    timer_.cancel();
    if (!at) return;
    timer_.expires_at(*at);
    timer_.async_wait([wake = std::move(wake)](const boost::system::error_code& error) {
      if (!error) wake();
    });
  }

 private:
  boost::asio::steady_timer timer_;
};

}  // namespace ddprun
