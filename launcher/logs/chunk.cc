#include "launcher/logs/chunk.h"

#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

using Buffer = std::unique_ptr<char[]>;

// A kept chunk that is smaller than this is copied into a buffer of its exact size.
constexpr size_t kCopiedBytes = 64 << 10;
constexpr size_t kMaxSpares = 4;

// Returns this thread's unused buffers. Each has Chunk::kMaxBytes bytes.
std::vector<Buffer>& Spares() {
  thread_local std::vector<Buffer> spares;
  return spares;
}

Buffer TakeBuffer() {
  std::vector<Buffer>& spares = Spares();
  if (spares.empty()) return Buffer(new char[Chunk::kMaxBytes]);
  Buffer buffer = std::move(spares.back());
  spares.pop_back();
  return buffer;
}

}  // namespace

Chunk Chunk::CopyOf(absl::string_view bytes) {
  Chunk chunk{.data = Buffer(new char[bytes.size()]), .size = bytes.size(), .capacity = bytes.size()};
  std::memcpy(chunk.data.get(), bytes.data(), bytes.size());
  return chunk;
}

ssize_t ReadChunk(int fd, Chunk& chunk, bool kept) {
  Chunk whole{.data = TakeBuffer(), .size = 0, .capacity = Chunk::kMaxBytes};
  const ssize_t n = read(fd, whole.data.get(), Chunk::kMaxBytes);
  if (n > 0) whole.size = static_cast<size_t>(n);
  if (!kept || whole.size >= kCopiedBytes) {
    chunk = std::move(whole);
  } else {
    chunk = Chunk::CopyOf(whole.view());
    Recycle(std::move(whole));
  }
  return n;
}

void Recycle(Chunk chunk) {
  if (chunk.capacity == Chunk::kMaxBytes && Spares().size() < kMaxSpares) {
    Spares().push_back(std::move(chunk.data));
  }
}

}  // namespace ddprun
