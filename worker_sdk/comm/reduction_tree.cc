#include "worker_sdk/comm/reduction_tree.h"

#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"

namespace ddprun {
namespace {

// Elements per pass over the tree. Small enough that the partial results in ReductionTree's registers stay in the L1
// cache.
constexpr size_t kBlockElems = 1024;

void AppendSubtrees(RankRange node, RankRange within, std::vector<RankRange>* out) {
  if (node.hi <= within.lo || within.hi <= node.lo) return;
  if (within.lo <= node.lo && node.hi <= within.hi) {
    out->push_back(node);
    return;
  }
  const int mid = SplitOf(node);
  AppendSubtrees({node.lo, mid}, within, out);
  AppendSubtrees({mid, node.hi}, within, out);
}

}  // namespace

std::vector<RankRange> SingleRanks(RankRange range) {
  std::vector<RankRange> ranks;
  for (int r = range.lo; r < range.hi; ++r) ranks.push_back({r, r + 1});
  return ranks;
}

int SplitOf(RankRange range) {
  return range.lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(range.size() - 1)));
}

std::vector<RankRange> SubtreesWithin(RankRange whole, RankRange within) {
  std::vector<RankRange> subtrees;
  AppendSubtrees(whole, within, &subtrees);
  return subtrees;
}

int NumSubtreesWithin(RankRange whole, RankRange within) {
  if (whole.hi <= within.lo || within.hi <= whole.lo) return 0;
  if (within.lo <= whole.lo && whole.hi <= within.hi) return 1;
  const int mid = SplitOf(whole);
  return NumSubtreesWithin({whole.lo, mid}, within) + NumSubtreesWithin({mid, whole.hi}, within);
}

ReductionTree::ReductionTree(RankRange whole, std::span<const RankRange> leaves)
    : num_leaves_(static_cast<int>(leaves.size())) {
  int next_leaf = 0;
  Compile(whole, leaves, &next_leaf, 0);
  DDPRUN_CHECK(next_leaf == num_leaves_, "the leaves do not cover the tree");
}

// Appends the steps for `range` to steps_. Returns the operand that holds the result, which is a leaf or
// register `dst`. The steps write only to register `dst` and to later registers.
int ReductionTree::Compile(RankRange range, std::span<const RankRange> leaves, int* next_leaf, int dst) {
  DDPRUN_CHECK(*next_leaf < num_leaves_, "the leaves do not cover the tree");
  if (leaves[*next_leaf] == range) return (*next_leaf)++;
  DDPRUN_CHECK(range.size() > 1, "a leaf is not a subtree");
  const int mid = SplitOf(range);
  const int lhs = Compile({range.lo, mid}, leaves, next_leaf, dst);
  const int rhs = Compile({mid, range.hi}, leaves, next_leaf, dst + 1);
  steps_.push_back({dst, lhs, rhs});
  num_registers_ = std::max(num_registers_, dst + 1);
  return num_leaves_ + dst;
}

void ReductionTree::Run(Reduction reduction, std::span<const char* const> leaves, char* out, size_t num_elems,
                        int divisor) const {
  DDPRUN_CHECK(static_cast<int>(leaves.size()) == num_leaves_, "not one pointer per leaf");
  DDPRUN_CHECK(divisor == 1 || !steps_.empty(), "a mean of one leaf");
  const size_t size = SizeOf(reduction.dtype);
  if (steps_.empty()) {
    std::copy_n(leaves[0], num_elems * size, out);
    return;
  }
  const size_t block = std::min(kBlockElems, num_elems);
  std::vector<char> registers((num_registers_ - 1) * block * size);
  for (size_t begin = 0; begin < num_elems; begin += kBlockElems) {
    const size_t n = std::min(kBlockElems, num_elems - begin);
    auto reg = [&](int r) { return r == 0 ? out + begin * size : registers.data() + (r - 1) * block * size; };
    auto operand = [&](int id) -> const char* {
      return id < num_leaves_ ? leaves[id] + begin * size : reg(id - num_leaves_);
    };
    for (const Step& step : steps_) {
      Combine(reduction, reg(step.dst), operand(step.lhs), operand(step.rhs), n,
              &step == &steps_.back() ? divisor : 1);
    }
  }
}

}  // namespace ddprun
