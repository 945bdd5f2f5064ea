// What communicator.h promises for a reduction, computed from the inputs of all ranks in the plainest way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/tensor.h"

namespace ddprun {

inline constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                                       DType::kInt32,   DType::kInt64,   DType::kUInt8};
inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                                             ReduceOp::kProduct};
// False for means of integers.
bool IsDefined(DType dtype, ReduceOp op);

// The bytes of `n` elements that depend on `seed` only. Floating-point elements have different magnitudes, so that
// the order of additions shows; none is NaN.
std::vector<char> RandomElements(DType dtype, uint64_t seed, size_t n);

// The bytes of the reduction of inputs[0], inputs[1], ... along the tree.
//   REQUIRES: all inputs have the same size; IsDefined(dtype, op).
std::vector<char> ReferenceReduction(DType dtype, ReduceOp op, const std::vector<std::vector<char>>& inputs);

}  // namespace ddprun
