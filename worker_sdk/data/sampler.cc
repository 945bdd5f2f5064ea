#include "worker_sdk/data/sampler.h"

#include <algorithm>

#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/data/permutation.h"

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
  const int64_t longer = global_batch % world_size;  // ranks that take one more
  const int64_t lo = rank * each + std::min(rank, longer);
  return {lo, lo + each + (rank < longer ? 1 : 0)};
}

}  // namespace ddprun
