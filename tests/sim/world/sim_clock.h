// Simulated time: what is to happen, in order; and the clocks of hosts, none of which agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ddprun::sim {

// Things that are due at the same time happen in the order in which they were planned.
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

  // Lets the next thing happen. REQUIRES: !idle().
  void RunOne() {
    std::pop_heap(plans_.begin(), plans_.end());
    const Plan plan = std::move(plans_.back());
    plans_.pop_back();
    now_ = plan.when;
    plan.what();
  }
  // All that is due until then; the clock stands there afterwards.
  void RunUntil(TimePoint end) {
    while (!idle() && next() <= end) RunOne();
    now_ = std::max(now_, end);
  }

 private:
  struct Plan {
    TimePoint when;
    uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Plan& other) const {  // a heap has the greatest in front
      return std::pair(when, sequence) > std::pair(other.when, other.sequence);
    }
  };

  TimePoint now_ = kStart;
  uint64_t next_ = 0;
  std::vector<Plan> plans_;  // a heap
};

// A host's monotonic clock: it began anywhere, and runs a little too fast or too slow.
class HostClock {
 public:
  HostClock(const SimClock* clock, Duration offset, int drift_ppm)
      : clock_(clock), offset_(offset), drift_ppm_(drift_ppm) {}

  TimePoint now() const {
    const int64_t passed = (clock_->now() - SimClock::kStart).count();
    return SimClock::kStart + offset_ + Duration(passed + passed / kMillion * drift_ppm_);
  }
  // A simulated time at which this clock shows `mine` or a little more.
  TimePoint ToSim(TimePoint mine) const {
    const int64_t shown = (mine - SimClock::kStart - offset_).count();
    int64_t passed = shown;
    for (int i = 0; i < 3; ++i)
      passed = shown - passed / kMillion * drift_ppm_;  // Each makes it 1000 times better.
    return SimClock::kStart + Duration(passed) + std::chrono::microseconds(4);
  }

 private:
  static constexpr int64_t kMillion = 1'000'000;
  const SimClock* const clock_;
  const Duration offset_;
  const int drift_ppm_;  // millionths; at most 1000 either way
};

}  // namespace ddprun::sim
