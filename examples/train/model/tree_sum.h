// Sums arrays in a fixed order that ranks can share.
//
// The sum over terms lo .. hi-1 is that of one binary tree over their numbers:
//   Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi), mid = lo + the largest power of two below hi - lo.
// The collectives sum ranks by the same rule. So when all ranks have the same power of two of samples, their
// trees are subtrees of the one over all samples, and any number of workers adds the same numbers in the same
// order.
//
//   terms   0   1   2   3   4   5
//            \ /     \ /     \ /        The sums of whole subtrees wait in a stack, as the ones of a binary
//             +       +       |         counter do: after term 4 it holds Sum(0,4) and term 4 itself.
//              \     /        |
//                 +-----------+
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "examples/train/model/buffer.h"

namespace ddprun::train {

// One sum after the other, of arrays of `num_elems`.
//   Threads: one caller at a time.
template <typename T>
class TreeSum {
 public:
  explicit TreeSum(size_t num_elems) : num_elems_(num_elems) {}

  // Starts a new sum.
  void Begin() { num_terms_ = 0; }

  // The next term, unless it is the last; `term` is scratch afterwards.
  void Add(absl::Span<T> term) {
    // Every trailing one of the count is a waiting subtree as large as the one that just became whole.
    size_t waiting = std::popcount(num_terms_);
    for (int merges = std::countr_one(num_terms_); merges > 0; --merges) AddTo(term, stack_[--waiting]);
    if (waiting == stack_.size()) stack_.emplace_back(num_elems_);
    std::copy(term.begin(), term.end(), stack_[waiting].data());
    ++num_terms_;
  }

  // Turns elements first .. first + count - 1 of the last term into those of the sum. The ranges of one sum
  // may be finished one by one, as they become known; each once.
  void Finish(absl::Span<T> last_term, size_t first, size_t count) const {
    for (size_t i = std::popcount(num_terms_); i-- > 0;) {
      AddTo(last_term.subspan(first, count), stack_[i].span().subspan(first, count));
    }
  }

 private:
  static void AddTo(absl::Span<T> sum, const Buffer<T>& term) { AddTo(sum, term.span()); }
  static void AddTo(absl::Span<T> sum, absl::Span<const T> term) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }

  const size_t num_elems_;
  uint64_t num_terms_ = 0;
  std::vector<Buffer<T>> stack_;  // the first popcount(num_terms_) are in use, the largest subtree first
};

}  // namespace ddprun::train
