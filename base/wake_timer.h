// A timer and a clock for code that drives a state machine which does not read a clock itself.
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
  // Calls `wake` once, at time `at` or soon after, but never from within Set. If `at` is nullopt, does not
  // call `wake`. Each call to Set cancels the wake-up that the previous call requested.
  virtual void Set(std::optional<TimePoint> at, std::function<void()> wake) = 0;
};

// A WakeTimer that uses std::chrono::steady_clock. Does not call `wake` after it is destroyed.
//   Threads: only the thread of `io`.
class AsioWakeTimer final : public WakeTimer {
 public:
  explicit AsioWakeTimer(boost::asio::io_context& io) : timer_(io) {}

  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    timer_.cancel();
    ++*sets_;
    if (!at) return;
    timer_.expires_at(*at);
    // cancel() does not prevent the handler of an expired wait from running, so the handler checks that Set
    // has not been called again.
    timer_.async_wait([sets = std::weak_ptr<int64_t>(sets_), set = *sets_,
                       wake = std::move(wake)](const boost::system::error_code& error) {
      const std::shared_ptr<int64_t> now = sets.lock();
      if (!error && now != nullptr && *now == set) wake();
    });
  }

 private:
  boost::asio::steady_timer timer_;
  const std::shared_ptr<int64_t> sets_ = std::make_shared<int64_t>(0);  // number of calls to Set
};

}  // namespace ddprun
