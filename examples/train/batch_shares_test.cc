#include "examples/train/batch_shares.h"

#include <span>
#include <vector>

#include "examples/train/model/buffer.h"
#include "examples/train/model/tree_sum.h"
#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/data/sampler.h"

namespace ddprun::train {
namespace {

using Array = std::vector<float>;

// Returns terms whose sum changes with nearly every change of the order of additions.
std::vector<Array> Terms(int64_t count) {
  CounterRng rng(static_cast<uint64_t>(count));
  std::vector<Array> terms(count, Array(200));
  for (Array& term : terms) {
    for (float& x : term) x = static_cast<float>(rng.Next() >> 40) / (1 + (rng.Next() & 0xfff));
  }
  return terms;
}

Array Sum(std::span<const Array> terms) {
  TreeSum<float> tree(terms[0].size());
  tree.Begin();
  for (const Array& term : terms.first(terms.size() - 1)) {
    Array scratch = term;
    tree.Add(std::span(scratch), 0);
    tree.EndTerm();
  }
  Array last = terms.back();
  tree.Finish(std::span(last), 0);
  return last;
}

TEST(BatchSharesTest, EqualPowersOfTwoSumAsOneWorker) {
  for (int64_t each = 1; each <= 64; each *= 2) {
    for (int64_t world = 1; world <= 50; ++world) EXPECT_TRUE(SumsAsOneWorker(each * world, world)) << world;
  }
}

TEST(BatchSharesTest, OtherSharesMayOrMayNotSumAsOneWorker) {
  EXPECT_TRUE(SumsAsOneWorker(12, 1));
  EXPECT_FALSE(SumsAsOneWorker(12, 2));  // 6 + 6; a single worker adds 8 + 4
  EXPECT_TRUE(SumsAsOneWorker(12, 3));
  EXPECT_FALSE(SumsAsOneWorker(12, 4));
  EXPECT_TRUE(SumsAsOneWorker(3, 2));   // 2 + 1
  EXPECT_FALSE(SumsAsOneWorker(4, 3));  // (2 + 1) + 1
  EXPECT_EQ(SharesInWords(12, 2), "6 each");
  EXPECT_EQ(SharesInWords(11, 3), "4 or 3");
}

TEST(BatchSharesTest, BitsAreEqualIfAndOnlyIfTheConditionHolds) {
  for (int64_t batch = 1; batch <= 24; ++batch) {
    const std::vector<Array> terms = Terms(batch);
    const Array alone = Sum(terms);
    for (int64_t world = 1; world <= batch; ++world) {
      std::vector<Array> of_ranks;
      for (int64_t rank = 0; rank < world; ++rank) {
        const BatchSpan span = SpanOfRank(batch, rank, world);
        of_ranks.push_back(Sum(std::span(terms).subspan(span.lo, span.hi - span.lo)));
      }
      EXPECT_EQ(Sum(of_ranks) == alone, SumsAsOneWorker(batch, world)) << batch << " among " << world;
    }
  }
}

}  // namespace
}  // namespace ddprun::train
