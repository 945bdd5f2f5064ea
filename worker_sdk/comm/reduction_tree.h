// The order in which values of several ranks are combined: a fixed binary tree over the rank numbers,
//
//   R(lo, hi) = R(lo, mid) op R(mid, hi),  mid = lo + the largest power of two below hi - lo
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

#include "worker_sdk/comm/combine.h"

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

// The sequence of operations that computes the result over `whole` from the results of the subtrees in `leaves`.
class ReductionTree {
 public:
  // REQUIRES: `leaves` are subtrees of the tree over `whole`, in rank order, and cover `whole`.
  ReductionTree(RankRange whole, std::span<const RankRange> leaves);

  // Sets out[i] to the combination of leaves[k][i] over all k, in tree order. Divides the result of the topmost
  // operation by `divisor`.
  //   Shapes: leaves [number of leaves] pointers to [num_elems]; out [num_elems], must not overlap a leaf, but may be one
  //           if there are at most two. All are aligned to the size of an element.
  //   REQUIRES: divisor == 1 if there is one leaf or if the elements are integers.
  void Run(Reduction reduction, std::span<const char* const> leaves, char* out, size_t num_elems,
           int divisor) const;

 private:
  // registers[dst] = operand lhs op operand rhs. Operand x is leaf x if x < num_leaves_, otherwise register
  // x - num_leaves_.
  struct Step {
    int dst, lhs, rhs;
  };
  int Compile(RankRange range, std::span<const RankRange> leaves, int* next_leaf, int dst);

  int num_leaves_;
  int num_registers_ = 1;    // register 0 is the output of Run
  std::vector<Step> steps_;  // the last one is the topmost
};

}  // namespace ddprun
