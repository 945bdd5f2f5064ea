// The elements of a thread: any grid and any block of one dimension; each thread takes every (threads of the grid)-th element.
#pragma once

#include <cstdint>

namespace {

__device__ int64_t FirstIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t Stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace
