// Random numbers as a function of (seed, counter). The state consists of only these two numbers. Equal
// states give equal bits on every machine and with every compiler and library.
#pragma once

#include <cstdint>

namespace ddprun {

// A bijection on 64-bit numbers: flipping any input bit flips about half of the output bits. This is the
// finalizer of SplitMix64.
//   Source:  Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
[[nodiscard]] constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class CounterRng {
 public:
  explicit constexpr CounterRng(uint64_t seed, uint64_t counter = 0) : seed_(seed), counter_(counter) {}

  // Uniform over all 64-bit numbers.
  constexpr uint64_t Next() { return MixBits(MixBits(seed_ + kGolden) + ++counter_ * kGolden); }

  // Uniform in [0, 1), a multiple of 2^-53.
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // Returns the sum of twelve uniform numbers minus six: mean 0, standard deviation 1, range [-6, 6]. This
  // is close enough to the normal distribution to initialize weights. It does not use libm, whose results
  // may differ in the last bits between machines.
  constexpr double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

  [[nodiscard]] constexpr uint64_t seed() const { return seed_; }
  [[nodiscard]] constexpr uint64_t counter() const { return counter_; }  // number of draws so far

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  uint64_t seed_;
  uint64_t counter_;
};

}  // namespace ddprun
