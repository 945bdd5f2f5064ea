// The timer and the clock of a shell that runs a pure machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  // Calls `wake` once, at `at` or soon after, but never from within Set. If `at` is nullopt, never calls it.
  // Each Set replaces the previous one.
  virtual void Set(std::optional<TimePoint> at, std::function<void()> wake) = 0;
};

// On std::chrono::steady_clock.
//   Threads: that of `io`. Does not call `wake` after the timer is destroyed.
class AsioWakeTimer final : public WakeTimer {
 public:
  explicit AsioWakeTimer(boost::asio::io_context& io) : timer_(io) {}

  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    timer_.cancel();
    ++*sets_;
    if (!at) return;
    timer_.expires_at(*at);
    // cancel() does not stop the handler of a wait that has already expired. So the handler checks that there
    // was no later Set.
    timer_.async_wait([sets = std::weak_ptr<int64_t>(sets_), set = *sets_,
                       wake = std::move(wake)](const boost::system::error_code& error) {
      const std::shared_ptr<int64_t> now = sets.lock();
      if (!error && now != nullptr && *now == set) wake();
    });
  }

 private:
  boost::asio::steady_timer timer_;
  const std::shared_ptr<int64_t> sets_ = std::make_shared<int64_t>(0);  // number of Set calls
};

}  // namespace ddprun
