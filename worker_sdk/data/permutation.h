// A shuffle of 0..n-1 that needs no memory: place -> element, computed.
#pragma once

#include <cstdint>

namespace ddprun {

// A Feistel network over the least even number of bits that n fits into; a place that is mapped beyond n is
// mapped again until it is not (fewer than four times on average), which keeps the map a bijection of 0..n-1.
// The same (n, key) gives the same shuffle on every machine.
//   Source:  Black, Rogaway: Ciphers with Arbitrary Finite Domains, CT-RSA 2002, method 3.
class Permutation {
 public:
  // REQUIRES: 1 <= n <= 2^62
  Permutation(int64_t n, uint64_t key);

  // REQUIRES: 0 <= place < n
  [[nodiscard]] int64_t operator[](int64_t place) const;

 private:
  [[nodiscard]] uint64_t Encrypt(uint64_t block) const;

  static constexpr int kRounds = 6;
  uint64_t n_;
  int half_bits_;
  uint64_t round_keys_[kRounds];
};

}  // namespace ddprun
