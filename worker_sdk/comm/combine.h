// The operation at one node of a reduction, on arrays.
#pragma once

#include <cstddef>

#include "ddprun/communicator.h"
#include "ddprun/tensor.h"

namespace ddprun {

struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // a mean adds; the topmost node divides
};

// Sets dst[i] to (lhs[i] op rhs[i]) / divisor, for `n` elements. Values of 16 bits are combined and divided in float32
// and then rounded once, ties to even. Integers wrap around. Min and max of a NaN are NaN.
//   Shapes:   dst, lhs, rhs [n], aligned to the size of an element; dst may be the same array as lhs or rhs.
//   REQUIRES: divisor == 1 for integers.
void Combine(Reduction reduction, void* dst, const void* lhs, const void* rhs, size_t n, int divisor);

}  // namespace ddprun
