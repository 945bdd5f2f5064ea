// The timer of a shell around a pure machine, and the clock of the machine's times.
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
  // Calls `wake` once, at `at` or soon after, never from within Set; none: never. Replaces the previous Set.
  virtual void Set(std::optional<TimePoint> at, std::function<void()> wake) = 0;
};

// On std::chrono::steady_clock.
//   Threads: that of `io`. Does not call `wake` after its destruction.
class AsioWakeTimer final : public WakeTimer {
 public:
  explicit AsioWakeTimer(boost::asio::io_context& io) : timer_(io) {}

  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    timer_.cancel();
    ++*sets_;
    if (!at) return;
    timer_.expires_at(*at);
    // cancel() has no effect on a wait that has already expired: its handler compares `sets`.
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
