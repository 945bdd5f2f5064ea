#include "worker_sdk/comm/reduction_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(SplitOfTest, LeftSideIsTheLargestPowerOfTwoBelowTheSize) {
  EXPECT_EQ(SplitOf({0, 2}), 1);
  EXPECT_EQ(SplitOf({0, 3}), 2);
  EXPECT_EQ(SplitOf({0, 4}), 2);
  EXPECT_EQ(SplitOf({0, 5}), 4);
  EXPECT_EQ(SplitOf({4, 7}), 6);
  EXPECT_EQ(SplitOf({0, 8}), 4);
}

TEST(SubtreesWithinTest, AnAlignedNodeIsOneSubtree) {
  EXPECT_THAT(SubtreesWithin({0, 8}, {4, 8}), ElementsAre(RankRange{4, 8}));
  EXPECT_THAT(SubtreesWithin({0, 7}, {4, 7}), ElementsAre(RankRange{4, 7}));
}

TEST(SubtreesWithinTest, AnUnalignedNodeIsSeveralSubtrees) {
  EXPECT_THAT(SubtreesWithin({0, 9}, {0, 3}), ElementsAre(RankRange{0, 2}, RankRange{2, 3}));
  EXPECT_THAT(SubtreesWithin({0, 9}, {3, 6}), ElementsAre(RankRange{3, 4}, RankRange{4, 6}));
  EXPECT_THAT(SubtreesWithin({0, 9}, {6, 9}), ElementsAre(RankRange{6, 8}, RankRange{8, 9}));
}

TEST(SubtreesWithinTest, NumSubtreesWithinEqualsTheNumberListed) {
  for (int world = 1; world <= 17; ++world) {
    for (int lo = 0; lo < world; ++lo) {
      for (int hi = lo + 1; hi <= world; ++hi) {
        EXPECT_EQ(NumSubtreesWithin({0, world}, {lo, hi}), SubtreesWithin({0, world}, {lo, hi}).size())
            << lo << " to " << hi << " of " << world;
      }
    }
  }
}

// The definition in reduction_tree.h, implemented literally.
template <typename T>
T ReferenceSum(const std::vector<std::vector<T>>& values, size_t i, int lo, int hi) {
  if (hi - lo == 1) return values[lo][i];
  int power = 1;
  while (2 * power < hi - lo) power *= 2;
  return ReferenceSum(values, i, lo, lo + power) + ReferenceSum(values, i, lo + power, hi);
}

template <typename T>
void CheckRandomWorlds(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Reduction sum{.dtype = DTypeOf<T>(), .op = ReduceOp::kSum};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  for (int trial = 0; trial < 100; ++trial) {
    const int world = 1 + static_cast<int>(random() % 20);
    const size_t n = random() % 3000;
    std::vector<std::vector<T>> values(world, std::vector<T>(n));
    for (auto& v : values) {
      for (T& x : v) x = uniform(random) * std::exp2(static_cast<T>(random() % 20));
    }
    // Splits the ranks into nodes at random. Each node sums its subtrees, and the tree over all ranks adds
    // these sums.
    std::vector<std::vector<T>> sums;
    std::vector<RankRange> subtrees;
    for (int lo = 0, hi; lo < world; lo = hi) {
      hi = lo + 1 + static_cast<int>(random() % (world - lo));
      if (hi - lo == world && world > 1) --hi;  // several nodes: the tree over their sums divides
      for (const RankRange& subtree : SubtreesWithin({0, world}, {lo, hi})) {
        std::vector<RankRange> ranks;
        std::vector<const char*> inputs;
        for (int r = subtree.lo; r < subtree.hi; ++r) {
          ranks.push_back({r, r + 1});
          inputs.push_back(reinterpret_cast<const char*>(values[r].data()));
        }
        sums.emplace_back(n);
        ReductionTree(subtree, ranks).Run(sum, inputs, reinterpret_cast<char*>(sums.back().data()), n, 1);
        subtrees.push_back(subtree);
      }
    }
    std::vector<const char*> leaves;
    for (const auto& subtree_sum : sums) leaves.push_back(reinterpret_cast<const char*>(subtree_sum.data()));
    std::vector<T> result(n);
    ReductionTree({0, world}, subtrees).Run(sum, leaves, reinterpret_cast<char*>(result.data()), n, world);
    for (size_t i = 0; i < n; ++i) {
      const T expected = ReferenceSum(values, i, 0, world) / static_cast<T>(world);
      ASSERT_EQ(std::memcmp(&result[i], &expected, sizeof(T)), 0) << "world " << world << " element " << i;
    }
  }
}

TEST(ReductionTreeTest, IsBitEqualToTheDefinitionForAnySplitIntoNodes) {
  CheckRandomWorlds<float>(1);
  CheckRandomWorlds<double>(2);
}

// If every order gave the same sum, the test above could not detect a wrong tree.
TEST(ReductionTreeTest, AnotherOrderGivesAnotherSum) {
  const float a = 1e8f, b = -1e8f, c = 1.0f;
  const char* const leaves[] = {reinterpret_cast<const char*>(&a), reinterpret_cast<const char*>(&c),
                                reinterpret_cast<const char*>(&b)};
  const RankRange ranks[] = {{0, 1}, {1, 2}, {2, 3}};
  float tree = 0;
  ReductionTree({0, 3}, ranks).Run({}, leaves, reinterpret_cast<char*>(&tree), 1, 1);
  EXPECT_EQ(tree, (a + c) + b);
  EXPECT_NE(tree, (a + b) + c);
}

}  // namespace
}  // namespace ddprun
