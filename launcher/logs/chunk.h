// A piece of a worker's output on its way.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"

namespace ddprun {

struct Chunk {
  // Of one read, at most.
  static constexpr size_t kMaxBytes = 256 << 10;

  std::unique_ptr<char[]> data;
  size_t size = 0;
  size_t capacity = 0;  // of memory

  absl::string_view view() const { return {data.get(), size}; }
  static Chunk CopyOf(absl::string_view bytes);
};

// Reads once into `chunk`. As read(2).
//   kept: for longer than until the next read; then it takes little more memory than it has bytes.
ssize_t ReadChunk(int fd, Chunk& chunk, bool kept);
// A few large buffers are kept for the next reads of this thread.
void Recycle(Chunk chunk);

}  // namespace ddprun
