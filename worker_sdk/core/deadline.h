// Deadlines from time limits of any length.
#pragma once

#include <chrono>

#include "ddprun/time.h"

namespace ddprun {

// The point in time `limit` from now; TimePoint::max() if that is out of range.
inline TimePoint DeadlineAfter(Duration limit) {
  const TimePoint now = std::chrono::steady_clock::now();
  return limit > TimePoint::max() - now ? TimePoint::max() : now + limit;
}

}  // namespace ddprun
