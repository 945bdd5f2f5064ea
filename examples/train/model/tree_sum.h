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

  // Adds the next term, except the last term, which must be passed to Finish. `term` is overwritten.
  void Add(std::span<T> term) {
    // Each trailing 1 bit of the count stands for a subtree on the stack that is merged with the new one.
    size_t waiting = std::popcount(num_terms_);
    for (int merges = std::countr_one(num_terms_); merges > 0; --merges) AddTo(term, stack_[--waiting]);
    if (waiting == stack_.size()) stack_.emplace_back(num_elems_);
    std::copy(term.begin(), term.end(), stack_[waiting].data());
    ++num_terms_;
  }

  // Replaces elements first .. first + count - 1 of the last term with those of the sum. A sum may be
  // finished in several ranges, as the elements of the last term become known. Each element must be in
  // exactly one range.
  void Finish(std::span<T> last_term, size_t first, size_t count) const {
    for (size_t i = std::popcount(num_terms_); i-- > 0;) {
      AddTo(last_term.subspan(first, count), stack_[i].span().subspan(first, count));
    }
  }

 private:
  static void AddTo(std::span<T> sum, const Buffer<T>& term) { AddTo(sum, term.span()); }
  static void AddTo(std::span<T> sum, std::span<const T> term) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }

  const size_t num_elems_;
  uint64_t num_terms_ = 0;
  std::vector<Buffer<T>> stack_;  // the first popcount(num_terms_) are in use; the largest is first
};

}  // namespace ddprun::train
