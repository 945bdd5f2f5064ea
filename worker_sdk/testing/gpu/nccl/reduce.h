// Arithmetic of NCCL's reductions, on the processor.
#pragma once

#include <cstddef>
#include <span>

#include "worker_sdk/testing/gpu/nccl/declarations.h"

namespace ddprun::stand_in {

// The size of an element; 0 if there is no such type.
size_t SizeOf(ncclDataType_t dtype);

// False for types of 8-bit floating-point numbers, and operations that the stand-in does not have.
bool CanReduce(ncclDataType_t dtype, ncclRedOp_t op);

// out = inputs[0] op inputs[1] op ..., in this order, each step rounded to the type. The average of floating-point numbers
// is the sum of the quotients, that of integers the quotient of the sum, as in NCCL.
//   Shapes:    inputs: arrays of `count` elements; `out` may be one of them.
//   REQUIRES:  CanReduce(dtype, op).
void Reduce(ncclDataType_t dtype, ncclRedOp_t op, size_t count, std::span<const std::byte* const> inputs,
            std::byte* out);

}  // namespace ddprun::stand_in
