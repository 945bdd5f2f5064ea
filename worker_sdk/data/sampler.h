// Assigns samples to steps, and the samples of a step to ranks.
//
// The samples of all epochs form one endless sequence: epoch 0 shuffled, epoch 1 shuffled differently, and so
// on. A step takes the next `global_batch` samples, regardless of the number of workers. The position in the
// sequence is therefore one number for the whole job, and no sample is repeated or skipped after a restart or
// a change in world size.
#pragma once

#include <cstdint>

namespace ddprun {

// The sampler's state in a snapshot. REQUIRES: epoch >= 0, 0 <= position < number of samples.
struct SamplerState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;  // number of samples of this epoch that all ranks together have taken

  bool operator==(const SamplerState&) const = default;
};

class Sampler {
 public:
  // REQUIRES: num_samples >= 1
  Sampler(int64_t num_samples, const SamplerState& state);

  // Returns the sample (0..num_samples-1) at the current position plus `offset`. REQUIRES: offset >= 0
  [[nodiscard]] int64_t Peek(int64_t offset) const;

  // Takes the next `count` samples. REQUIRES: count >= 0
  void Advance(int64_t count);

  [[nodiscard]] const SamplerState& state() const { return state_; }
  [[nodiscard]] int64_t num_samples() const { return num_samples_; }

 private:
  int64_t num_samples_;
  SamplerState state_;
};

// The offsets lo .. hi-1 in a global batch.
struct BatchSpan {
  int64_t lo = 0;
  int64_t hi = 0;
  bool operator==(const BatchSpan&) const = default;
};

// Returns the span of the batch that belongs to `rank`. The spans of all ranks are contiguous in rank order
// and cover the batch. Their lengths differ by at most one; lower ranks have the longer spans.
[[nodiscard]] BatchSpan SpanOfRank(int64_t global_batch, int64_t rank, int64_t world_size);

// A shuffle of 0..n-1, computed without storing it.
//
// Uses a Feistel network on the smallest even number of bits that can hold n-1. A result greater than n-1 is
// mapped again until it is in range, which makes the shuffle a bijection on 0..n-1. On average, the network
// is applied fewer than four times. The same (n, key) give the same shuffle on every machine.
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
