// The part of an operation that passes through the segment at a time.
#pragma once

#include <cstddef>

#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

// num_bytes of every rank's input, starting at `offset`. Equal on all ranks except for `in` and `out`.
struct Chunk {
  Call call;
  const char* in = nullptr;  // input of the whole operation
  char* out = nullptr;
  size_t offset = 0;
  size_t num_bytes = 0;
};

}  // namespace ddprun
