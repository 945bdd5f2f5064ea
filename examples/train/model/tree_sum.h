// Sums arrays in a fixed order that does not depend on the number of ranks.
//
// The sum over terms lo .. hi-1 follows a binary tree over their indices:
//   Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi), mid = lo + the largest power of two below hi - lo.
// The collectives sum the inputs of ranks by the same rule. If all ranks have the same power-of-two number of
// samples, their trees are subtrees of the tree over all samples, so any number of workers adds the same
// numbers in the same order.
//
//   terms   0   1   2   3   4   5
//            \ /     \ /     \ /        Sums of complete subtrees are kept on a stack, one per set bit of the
//             +       +       |         number of terms. After term 4, the stack has Sum(0,4) and term 4.
//              \     /        |
//                 +-----------+
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/train/model/buffer.h"

namespace ddprun::train {

// Sums arrays of `num_elems` elements; computes one sum at a time.
//   Threads: one caller at a time.
template <typename T>
class TreeSum {
 public:
  explicit TreeSum(size_t num_elems) : num_elems_(num_elems) {}

  // Starts a new sum.
  void Begin() { num_terms_ = 0; }

  // Adds elements first .. first + part.size() - 1 of the next term, which is not the last one. `part` is
  // overwritten. A term may be added in several parts, as its elements become known; each element must be in
  // exactly one part. EndTerm() follows the last part.
  void Add(std::span<T> part, size_t first) {
    // Each trailing 1 bit of the count stands for a subtree on the stack that is merged with the new one.
    size_t waiting = std::popcount(num_terms_);
    for (int merges = std::countr_one(num_terms_); merges > 0; --merges) AddTo(part, first, --waiting);
    if (waiting == stack_.size()) stack_.emplace_back(num_elems_);
    std::copy(part.begin(), part.end(), stack_[waiting].data() + first);
  }
  void EndTerm() { ++num_terms_; }

  // Replaces a part of the last term with that of the sum. Parts are as in Add.
  void Finish(std::span<T> part, size_t first) const {
    for (size_t i = std::popcount(num_terms_); i-- > 0;) AddTo(part, first, i);
  }

 private:
  void AddTo(std::span<T> sum, size_t first, size_t subtree) const {
    const T* terms = stack_[subtree].data() + first;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
  }

  const size_t num_elems_;
  uint64_t num_terms_ = 0;
  std::vector<Buffer<T>> stack_;  // the first popcount(num_terms_) are in use; the largest is first
};

}  // namespace ddprun::train
