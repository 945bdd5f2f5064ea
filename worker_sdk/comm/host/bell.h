// Wakes one rank that waits for messages of other ranks of its node.
#pragma once

#include <atomic>
#include <cstdint>

#include "worker_sdk/comm/host/futex.h"

namespace ddprun {

// In memory that the ranks of a node share. All loads and stores are sequentially consistent: if a rank publishes
// something and calls Ring, either Ring finds the owner asleep, or the owner finds what was published when it checks
// between PrepareToSleep and Sleep.
//   Threads: PrepareToSleep, Sleep and Awake: one thread of the owner at a time. All others: any.
class Bell {
 public:
  // Announces that the owner is about to sleep, until `rank` has sent or received something (for AwaitedRank). After
  // this call, the owner checks once more whether it has to sleep.
  void PrepareToSleep(int rank) {
    awaited_.store(rank);
    asleep_.store(1);
    event_seen_ = event_.load();
  }
  // Returns when the bell rings, at `deadline`, or at any time in between. Does not block if the bell has rung since
  // PrepareToSleep.
  void Sleep(TimePoint deadline) { FutexWait(&event_, event_seen_, deadline); }
  void Awake() {
    asleep_.store(0);
    awaited_.store(kNone);
  }

  // Wakes the owner if it sleeps or is about to.
  void Ring() {
    if (asleep_.load() != 0) RingLoudly();
  }
  // As Ring, for news that were published before with a weaker order.
  void RingLoudly() {
    event_.fetch_add(1);
    FutexWakeAll(&event_);
  }

  // The rank for which the owner sleeps; kNone if it does not sleep.
  static constexpr int kNone = -1;
  int AwaitedRank() const { return awaited_.load(); }

 private:
  std::atomic<uint32_t> event_{0};  // futex: changes when the owner is to be woken
  std::atomic<uint32_t> asleep_{0};
  std::atomic<int32_t> awaited_{kNone};
  uint32_t event_seen_ = 0;  // used only by the owner
};

}  // namespace ddprun
