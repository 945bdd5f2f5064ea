// Arithmetic on gradients: compression, scaling, the global norm. All of it is elementwise or follows a fixed order, so
// equal inputs give equal bits on every rank.
#pragma once

#include <cstdint>

#include "ddprun/tensor.h"

namespace ddprun {

// Sets out[i] to `in[i] / divisor`, computed in float32 and rounded to the type of `out`. If `residual` is not null, adds
// residual[i] before the rounding, and sets it to what the rounding removed, or to 0 if the result is not finite.
//   Shapes: in, out, residual [in.count]; in: float32 or float64; out: float16 or bfloat16.
void Compress(const ConstTensor& in, float divisor, float* residual, const Tensor& out);
// Sets out[i] to in[i], which is exact.
//   Shapes: as Compress, with the types exchanged.
void Decompress(const ConstTensor& in, const Tensor& out);

// Multiplies in float64, and rounds to the tensor's type; 16-bit types via float32.
void Multiply(double factor, const Tensor& inout);

// Element i as a float64.
double ElementAt(const ConstTensor& tensor, int64_t i);
void SetElement(const Tensor& tensor, int64_t i, double value);

// The square root of the sum of the squares of all elements. The sum is in float64, over blocks of 4096 elements of the
// concatenation of all tensors: eight partial sums in each block, of the elements whose index modulo 8 is 0 .. 7, which are
// added as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)); then the blocks in order. So the norm does not depend on how the
// elements are divided into tensors, and ranks may compute the blocks of different parts.
class GlobalNorm {
 public:
  void Add(const ConstTensor& tensor);
  [[nodiscard]] double value() const;

 private:
  template <typename Element>
  void AddElements(const typename Element::Stored* values, int64_t count);
  [[nodiscard]] double BlockSum() const;

  static constexpr int64_t kLanes = 8, kBlock = 4096;
  double sum_ = 0;  // of the blocks that are complete
  double lanes_[kLanes] = {};
  int64_t filled_ = 0;  // elements in the open block
};

}  // namespace ddprun
