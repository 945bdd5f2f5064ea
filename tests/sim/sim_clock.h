// Simulated time: what is to happen, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ddprun::sim {

// Things that are due at the same time happen in the order in which they were planned.
class SimClock {
 public:
  TimePoint now() const { return now_; }
  bool idle() const { return plans_.empty(); }

  void At(TimePoint when, std::function<void()> what) {
    plans_.push({when < now_ ? now_ : when, next_++, std::move(what)});
  }
  void After(Duration d, std::function<void()> what) { At(now_ + d, std::move(what)); }

  // Lets the next thing happen. REQUIRES: !idle().
  void RunOne() {
    Plan plan = plans_.top();
    plans_.pop();
    now_ = plan.when;
    plan.what();
  }

 private:
  struct Plan {
    TimePoint when;
    uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Plan& other) const {  // priority_queue has the greatest on top
      return std::pair(when, sequence) > std::pair(other.when, other.sequence);
    }
  };

  TimePoint now_{seconds(1000)};
  uint64_t next_ = 0;
  std::priority_queue<Plan> plans_;
};

}  // namespace ddprun::sim
