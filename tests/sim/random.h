// The same numbers from the same seed, everywhere.
#pragma once

#include <cstdint>
#include <random>

#include "base/time.h"

namespace ddprun::sim {

// mt19937_64's output is specified by the standard, unlike that of its distributions, so those are ours.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Uniform in [lo, hi].
  int64_t Between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(engine_() % static_cast<uint64_t>(hi - lo + 1));
  }
  Duration Between(Duration lo, Duration hi) { return Duration(Between(lo.count(), hi.count())); }
  bool Chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < p; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ddprun::sim
