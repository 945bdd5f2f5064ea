// A part of an operation that fits into one slot of the segment.
#pragma once

#include <cstddef>

#include "ddprun/tensor.h"
#include "worker_sdk/comm/combine.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

// num_bytes bytes of every rank's input, starting at `offset`. All fields except `in` and `out` are equal on
// all ranks.
struct Chunk {
  Call call;
  const char* in = nullptr;  // input of the whole operation
  char* out = nullptr;       // output of the whole operation
  size_t offset = 0;
  size_t num_bytes = 0;

  size_t elem_bytes() const { return SizeOf(call.dtype); }
  size_t num_elems() const { return num_bytes / elem_bytes(); }
  Reduction reduction() const { return {.dtype = call.dtype, .op = call.op}; }
};

}  // namespace ddprun
