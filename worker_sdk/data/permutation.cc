#include "worker_sdk/data/permutation.h"

#include <algorithm>
#include <bit>

#include "worker_sdk/data/counter_rng.h"

namespace ddprun {

Permutation::Permutation(int64_t n, uint64_t key)
    : n_(static_cast<uint64_t>(n)), half_bits_(std::max<int>(1, (std::bit_width(n_ - 1) + 1) / 2)) {
  CounterRng rng(key);
  for (uint64_t& round_key : round_keys_) round_key = rng.Next();
}

int64_t Permutation::operator[](int64_t place) const {
  uint64_t block = static_cast<uint64_t>(place);
  do {
    block = Encrypt(block);
  } while (block >= n_);
  return static_cast<int64_t>(block);
}

uint64_t Permutation::Encrypt(uint64_t block) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = block >> half_bits_, right = block & mask;
  for (const uint64_t round_key : round_keys_) {
    const uint64_t mixed = left ^ (MixBits(right + round_key) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace ddprun
