// A buffer with a piece of a worker's output.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"

namespace ddprun {

struct Chunk {
  // Maximum size of one read.
  static constexpr size_t kMaxBytes = 256 << 10;

  std::unique_ptr<char[]> data;
  size_t size = 0;
  size_t capacity = 0;  // bytes of memory at `data`

  absl::string_view view() const { return {data.get(), size}; }
  static Chunk CopyOf(absl::string_view bytes);
};

// Reads once into `chunk`. Returns the same value as read(2).
//   kept: the chunk outlives the next read, so a small one gets a buffer of exactly its size.
ssize_t ReadChunk(int fd, Chunk& chunk, bool kept);
// Frees `chunk`, but keeps a few full-size buffers for later reads in this thread.
void Recycle(Chunk chunk);

}  // namespace ddprun
