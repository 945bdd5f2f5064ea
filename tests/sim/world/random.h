// Pseudorandom numbers that are equal for equal seeds on all platforms.
#pragma once

#include <cstdint>
#include <random>

#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun::sim {

// The C++ standard specifies the output of mt19937_64, but not the algorithms of its distributions, so this
// class implements its own distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Each part of a run draws from a separate stream, so that one part does not change the numbers of another.
  Random(uint64_t seed, absl::string_view part) : engine_(Mix(seed, part)) {}

  // Uniform in [lo, hi].
  int64_t Between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(engine_() % static_cast<uint64_t>(hi - lo + 1));
  }
  Duration Between(Duration lo, Duration hi) { return Duration(Between(lo.count(), hi.count())); }
  bool Chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < p; }

 private:
  static uint64_t Mix(uint64_t seed, absl::string_view part) {
    uint64_t hash = 0xcbf29ce484222325 ^ seed;  // FNV-1a
    for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
  }

  std::mt19937_64 engine_;
};

}  // namespace ddprun::sim
