// Where the memory of an operation is.
#pragma once

#include <cstdint>

namespace ddprun {

// Memory of one rank. Shared between processes.
struct Place {
  uint32_t region = 0;  // 1 + Region::id(); 0: memory that only the rank itself can access
  uint32_t reserved = 0;
  uint64_t offset = 0;  // in the rank's part of the region
};

// The input and the output of one rank's operation.
struct Places {
  Place in, out;
};

}  // namespace ddprun
