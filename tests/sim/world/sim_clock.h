// Simulated time: an ordered queue of events, and host clocks with different offsets and drifts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ddprun::sim {

// Events with equal times run in the order in which they were scheduled.
class SimClock {
 public:
  static constexpr TimePoint kStart{seconds(1000)};

  TimePoint now() const { return now_; }
  bool idle() const { return plans_.empty(); }
  TimePoint next() const { return plans_.front().when; }  // REQUIRES: !idle()

  void At(TimePoint when, std::function<void()> what) {
    plans_.push_back({std::max(when, now_), next_++, std::move(what)});
    std::push_heap(plans_.begin(), plans_.end());
  }
  void After(Duration d, std::function<void()> what) { At(now_ + d, std::move(what)); }

  // Runs the next event. REQUIRES: !idle().
  void RunOne() {
    std::pop_heap(plans_.begin(), plans_.end());
    const Plan plan = std::move(plans_.back());
    plans_.pop_back();
    now_ = plan.when;
    plan.what();
  }
  // Runs all events that are due at `end` or earlier. Afterwards now() is at least `end`.
  void RunUntil(TimePoint end) {
    while (!idle() && next() <= end) RunOne();
    now_ = std::max(now_, end);
  }

 private:
  struct Plan {
    TimePoint when;
    uint64_t sequence;
    std::function<void()> what;
    // Reversed, since std::push_heap keeps the maximum in front.
    bool operator<(const Plan& other) const {
      return std::pair(when, sequence) > std::pair(other.when, other.sequence);
    }
  };

  TimePoint now_ = kStart;
  uint64_t next_ = 0;
  std::vector<Plan> plans_;  // a heap
};

// A host's monotonic clock, with an arbitrary offset and a constant drift.
class HostClock {
 public:
  // drift_ppm: -100'000 to 100'000.
  HostClock(const SimClock* clock, Duration offset, int drift_ppm)
      : clock_(clock), offset_(offset), rate_(kMillion + drift_ppm) {}

  TimePoint now() const {
    return SimClock::kStart + offset_ + Scaled(clock_->now() - SimClock::kStart, rate_, kMillion);
  }
  // A simulated time at which this clock shows `mine` or slightly more.
  TimePoint ToSim(TimePoint mine) const {
    return SimClock::kStart + Scaled(mine - SimClock::kStart - offset_, kMillion, rate_) +
           std::chrono::microseconds(4);
  }

 private:
  static constexpr int64_t kMillion = 1'000'000;
  // d * numerator / denominator, without an overflow.
  static Duration Scaled(Duration d, int64_t numerator, int64_t denominator) {
    const int64_t n = d.count();
    return Duration(n / denominator * numerator + n % denominator * numerator / denominator);
  }

  const SimClock* const clock_;
  const Duration offset_;
  const int64_t rate_;  // how far this clock advances in a million ticks of the simulated one
};

}  // namespace ddprun::sim
