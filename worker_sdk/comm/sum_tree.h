// The order in which values of several ranks are added: a fixed binary tree over the rank numbers,
//
//   Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi),  mid = lo + the largest power of two below hi - lo
//
//   0 1 2 3 4 5 6
//   \_/ \_/ \_/ |
//    \___/   \__|
//      \______/
//
// Floating-point addition is not associative, so the result depends on the order. With a fixed tree, a sum
// does not depend on the sizes of messages, on timing, or on which ranks share a node. The subtree over an
// aligned range of 2^k ranks is the same for every world size, so runs with 1, 2, 4 and 8 workers can agree
// to the last bit.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddprun {

// Ranks lo .. hi - 1.
struct RankRange {
  int lo = 0;
  int hi = 0;
  int size() const { return hi - lo; }
  bool operator==(const RankRange&) const = default;
};

// Returns one range for each rank in `range`. These ranges are the leaves of a tree over the ranks' inputs.
std::vector<RankRange> SingleRanks(RankRange range);

// Returns the rank at which the tree splits `range`: the first rank of the right half.
//   REQUIRES: range.size() >= 2.
int SplitOf(RankRange range);

// Returns the maximal subtrees of the tree over `whole` that lie in `within`, in rank order. Of the ranks in
// `within`, the rest of the tree needs only the sums of these subtrees. If `within` consists of 2^k ranks and
// begins at a multiple of 2^k, it is one subtree; otherwise it has at most 2 log2(within.size()) subtrees.
std::vector<RankRange> SubtreesWithin(RankRange whole, RankRange within);
// Returns SubtreesWithin(whole, within).size() without allocating.
int NumSubtreesWithin(RankRange whole, RankRange within);

// The sequence of additions that computes the sum over `whole` from the sums of the subtrees in `leaves`.
class SumTree {
 public:
  // REQUIRES: `leaves` are subtrees of the tree over `whole`, in rank order, and cover `whole`.
  SumTree(RankRange whole, std::span<const RankRange> leaves);

  // Sets out[i] to the sum of leaves[k][i] over all k, added in tree order and divided by `divisor`.
  //   Shapes: leaves [number of leaves] pointers to [num_elems]; out [num_elems], must not overlap a leaf.
  template <typename T>
  void Run(std::span<const T* const> leaves, T* out, size_t num_elems, T divisor) const;

 private:
  // registers[dst] = operand lhs + operand rhs. Operand x is leaf x if x < num_leaves_, otherwise register
  // x - num_leaves_.
  struct Add {
    int dst, lhs, rhs;
  };
  int Compile(RankRange range, std::span<const RankRange> leaves, int* next_leaf, int dst);

  int num_leaves_;
  int num_registers_ = 1;  // register 0 is the output of Run
  std::vector<Add> adds_;
};

extern template void SumTree::Run(std::span<const float* const>, float*, size_t, float) const;
extern template void SumTree::Run(std::span<const double* const>, double*, size_t, double) const;

}  // namespace ddprun
