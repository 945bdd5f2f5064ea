// A buffer with a piece of a worker's output.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"

namespace ddprun {

struct Chunk {
  // Maximum number of bytes in one read.
  static constexpr size_t kMaxBytes = 256 << 10;

  std::unique_ptr<char[]> data;
  size_t size = 0;
  size_t capacity = 0;  // number of bytes allocated at `data`

  absl::string_view view() const { return {data.get(), size}; }
  static Chunk CopyOf(absl::string_view bytes);
};

// Calls read(2) once, stores the bytes in `chunk`, and returns the result of read(2).
//   kept: true if the caller keeps the chunk. To save memory, a small chunk that is kept gets a buffer of its
//         exact size.
ssize_t ReadChunk(int fd, Chunk& chunk, bool kept);
// Destroys `chunk`. May keep the buffer for a later call to ReadChunk in the same thread.
void Recycle(Chunk chunk);

}  // namespace ddprun
