#include "worker_sdk/data/sampler.h"

#include <algorithm>
#include <bit>

#include "worker_sdk/data/counter_rng.h"

namespace ddprun {

Sampler::Sampler(int64_t num_samples, const SamplerState& state) : num_samples_(num_samples), state_(state) {}

int64_t Sampler::Peek(int64_t offset) const {
  const int64_t place = state_.position + offset;
  const uint64_t epoch = static_cast<uint64_t>(state_.epoch + place / num_samples_);
  return Permutation(num_samples_, MixBits(state_.seed) ^ epoch)[place % num_samples_];
}

void Sampler::Advance(int64_t count) {
  const int64_t place = state_.position + count;
  state_.epoch += place / num_samples_;
  state_.position = place % num_samples_;
}

BatchSpan SpanOfRank(int64_t global_batch, int64_t rank, int64_t world_size) {
  const int64_t each = global_batch / world_size;
  const int64_t longer = global_batch % world_size;  // number of ranks that have one more sample
  const int64_t lo = rank * each + std::min(rank, longer);
  return {lo, lo + each + (rank < longer ? 1 : 0)};
}

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
