// The order in which values of several ranks are added: a fixed binary tree over the rank numbers,
//
//   Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi),  mid = lo + the largest power of two below hi - lo
//
//   0 1 2 3 4 5 6
//   \_/ \_/ \_/ |
//    \___/   \__|
//      \______/
//
// Floating-point addition is not associative. A sum is independent of sizes, timing and which ranks share a
// node only if the tree is fixed. The subtree over an aligned range of 2^k ranks is the same for every world
// size, so runs with 1, 2, 4 and 8 workers can agree to the last bit.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace ddprun {

// Ranks lo .. hi - 1.
struct RankRange {
  int lo = 0;
  int hi = 0;
  int size() const { return hi - lo; }
  bool operator==(const RankRange&) const = default;
};

// One range for each rank in `range`: the leaves of a tree over the ranks' inputs.
std::vector<RankRange> SingleRanks(RankRange range);

// The rank at which the tree splits `range`.
//   REQUIRES: range.size() >= 2.
int SplitOf(RankRange range);

// The maximal subtrees of the tree over `whole` that lie in `within`, in rank order. The rest of the tree
// needs only the sums of these subtrees. If `within` is 2^k ranks that begin at a multiple of 2^k, there is
// one subtree; otherwise there are at most 2 log2(n) subtrees for n ranks.
std::vector<RankRange> SubtreesWithin(RankRange whole, RankRange within);
// Returns SubtreesWithin(whole, within).size() without allocating.
int NumSubtreesWithin(RankRange whole, RankRange within);

// The additions that compute the sum over `whole` from the sums of the subtrees in `leaves`.
class SumTree {
 public:
  // REQUIRES: `leaves` are subtrees of the tree over `whole`, in order, and cover it.
  SumTree(RankRange whole, absl::Span<const RankRange> leaves);

  // out[i] = the sum of leaves[k][i] over all k, added in tree order and divided by `divisor`.
  //   Shapes: leaves [number of leaves] pointers to [num_elems]; out [num_elems], overlapping no leaf.
  template <typename T>
  void Run(absl::Span<const T* const> leaves, T* out, size_t num_elems, T divisor) const;

 private:
  // registers[dst] = operand lhs + operand rhs. Operand x is leaf x if x < num_leaves_, otherwise register
  // x - num_leaves_.
  struct Add {
    int dst, lhs, rhs;
  };
  int Compile(RankRange range, absl::Span<const RankRange> leaves, int* next_leaf, int dst);

  int num_leaves_;
  int num_registers_ = 1;  // register 0 is the result
  std::vector<Add> adds_;
};

extern template void SumTree::Run(absl::Span<const float* const>, float*, size_t, float) const;
extern template void SumTree::Run(absl::Span<const double* const>, double*, size_t, double) const;

}  // namespace ddprun
