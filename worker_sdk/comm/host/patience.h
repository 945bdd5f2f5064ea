// How long the thread that moves data waits for other ranks.
#pragma once

#include <functional>

#include "base/time.h"

namespace ddprun {

//   Threads: only the thread that moves data.
struct Patience {
  TimePoint deadline = TimePoint::max();
  // Called once if a wait reaches the deadline. Must end communication, which ends the wait.
  std::function<void()> passed = nullptr;

  // Calls `passed` if the deadline has passed.
  void Check() {
    if (deadline == TimePoint::max() || std::chrono::steady_clock::now() < deadline) return;
    deadline = TimePoint::max();
    passed();
  }
};

}  // namespace ddprun
