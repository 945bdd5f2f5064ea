#include "worker_sdk/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

std::vector<int64_t> Shuffled(int64_t n, uint64_t key) {
  const Permutation permutation(n, key);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(permutation[i]);
  return all;
}

TEST(PermutationTest, IsABijectionForEverySize) {
  for (int64_t n = 1; n <= 300; ++n) {
    std::vector<int64_t> all = Shuffled(n, n * 7);
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(all[i], i) << "n=" << n;
  }
}

TEST(PermutationTest, DependsOnlyOnTheKey) {
  EXPECT_EQ(Shuffled(100, 1), Shuffled(100, 1));
  EXPECT_NE(Shuffled(100, 1), Shuffled(100, 2));
  // Another program computed these numbers. They must never change, because existing snapshots depend on
  // them.
  EXPECT_EQ(Shuffled(8, 42), (std::vector<int64_t>{5, 3, 6, 0, 1, 4, 2, 7}));
}

TEST(PermutationTest, EveryElementIsAboutEquallyLikelyAtEveryPlace) {
  constexpr int64_t kN = 10, kKeys = 20000;
  int64_t count[kN][kN] = {};
  for (int64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(kN, key);
    for (int64_t place = 0; place < kN; ++place) ++count[place][permutation[place]];
  }
  const double expected = static_cast<double>(kKeys) / kN;
  for (const auto& row : count) {
    for (const int64_t n : row) EXPECT_NEAR(static_cast<double>(n), expected, 6 * std::sqrt(expected));
  }
}

TEST(SpanOfRankTest, CoversTheBatchInOrder) {
  EXPECT_EQ(SpanOfRank(8, 1, 4), (BatchSpan{2, 4}));
  EXPECT_EQ(SpanOfRank(7, 0, 3), (BatchSpan{0, 3}));
  EXPECT_EQ(SpanOfRank(7, 1, 3), (BatchSpan{3, 5}));
  EXPECT_EQ(SpanOfRank(7, 2, 3), (BatchSpan{5, 7}));
  for (int64_t batch = 0; batch < 40; ++batch) {
    for (int64_t world = 1; world < 12; ++world) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const BatchSpan span = SpanOfRank(batch, rank, world);
        EXPECT_EQ(span.lo, next);
        EXPECT_LE(span.hi - span.lo, batch / world + 1);
        EXPECT_GE(span.hi - span.lo, batch / world);
        next = span.hi;
      }
      EXPECT_EQ(next, batch);
    }
  }
}

// Each step has a random world size and batch size, and its samplers start from the state of the previous
// step. The sequence of samples must equal that of a single worker, and every epoch must contain every
// sample once.
TEST(SamplerTest, EverySampleIsTakenOncePerEpochForAnyWorldSizes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    CounterRng rng(seed);
    const int64_t num_samples = 1 + rng.Next() % 50;
    const Sampler single(num_samples, {.seed = seed});
    std::vector<int64_t> taken;
    SamplerState state{.seed = seed};
    while (static_cast<int64_t>(taken.size()) < 4 * num_samples) {
      const int64_t world_size = 1 + rng.Next() % 9;
      const int64_t batch = world_size + rng.Next() % 20;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const Sampler sampler(num_samples, state);  // each rank has its own sampler
        const BatchSpan span = SpanOfRank(batch, rank, world_size);
        for (int64_t place = span.lo; place < span.hi; ++place) taken.push_back(sampler.Peek(place));
      }
      Sampler sampler(num_samples, state);
      sampler.Advance(batch);
      state = sampler.state();
    }
    for (size_t i = 0; i < taken.size(); ++i) ASSERT_EQ(taken[i], single.Peek(i)) << "sample " << i;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int64_t> one(taken.begin() + epoch * num_samples,
                               taken.begin() + (epoch + 1) * num_samples);
      std::sort(one.begin(), one.end());
      std::vector<int64_t> all(num_samples);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(one, all) << "epoch " << epoch;
    }
  }
}

TEST(SamplerTest, EpochsAreShuffledDifferently) {
  const Sampler sampler(100, {.seed = 1});
  int same = 0;
  for (int64_t i = 0; i < 100; ++i) same += sampler.Peek(i) == sampler.Peek(100 + i);
  EXPECT_LT(same, 10);
}

}  // namespace
}  // namespace ddprun
