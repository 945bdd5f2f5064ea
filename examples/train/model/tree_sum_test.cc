#include "examples/train/model/tree_sum.h"

#include <bit>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/data/sampler.h"

namespace ddprun::train {
namespace {

using Array = std::vector<float>;

// Implements the rule in tree_sum.h literally.
Array Reference(std::span<const Array> terms) {
  if (terms.size() == 1) return terms[0];
  const size_t mid = std::bit_floor(terms.size() - 1);
  Array sum = Reference(terms.first(mid));
  const Array right = Reference(terms.subspan(mid));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

Array Sum(TreeSum<float>& tree, std::span<const Array> terms) {
  tree.Begin();
  const size_t size = terms[0].size(), half = size / 2;
  for (const Array& term : terms.first(terms.size() - 1)) {
    Array scratch = term;
    tree.Add(std::span(scratch).subspan(half), half);  // the second half first
    tree.Add(std::span(scratch).first(half), 0);
    tree.EndTerm();
  }
  Array last = terms.back();
  tree.Finish(std::span(last).subspan(half), half);
  tree.Finish(std::span(last).first(half), 0);
  return last;
}

// Returns terms of very different magnitudes, so that a different order of additions gives different bits.
std::vector<Array> Terms(size_t count) {
  CounterRng rng(count);
  std::vector<Array> terms(count, Array(5));
  for (Array& term : terms) {
    for (float& x : term) x = static_cast<float>(rng.Normal() * static_cast<double>(1 << rng.Next() % 20));
  }
  return terms;
}

TEST(TreeSumTest, FollowsTheRule) {
  TreeSum<float> tree(5);
  for (size_t count = 1; count <= 130; ++count) {
    const std::vector<Array> terms = Terms(count);
    EXPECT_EQ(Sum(tree, terms), Reference(terms)) << count << " terms";
  }
}

// If the order of additions did not matter, the next test would prove nothing.
TEST(TreeSumTest, TheOrderMatters) {
  const std::vector<Array> terms = Terms(64);
  Array in_sequence(5);
  for (const Array& term : terms) {
    for (size_t i = 0; i < term.size(); ++i) in_sequence[i] += term[i];
  }
  EXPECT_NE(in_sequence, Reference(terms));
}

TEST(TreeSumTest, RanksWithPowerOfTwoSpansSumAsOneWorker) {
  TreeSum<float> tree(5);
  for (const int64_t each : {1, 2, 4, 8}) {
    for (const int64_t world_size : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const std::vector<Array> terms = Terms(each * world_size);
      std::vector<Array> of_ranks;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const BatchSpan span = SpanOfRank(each * world_size, rank, world_size);
        of_ranks.push_back(Sum(tree, std::span(terms).subspan(span.lo, span.hi - span.lo)));
      }
      EXPECT_EQ(Reference(of_ranks), Sum(tree, terms))
          << world_size << " ranks with " << each << " samples each";
    }
  }
}

}  // namespace
}  // namespace ddprun::train
