// A stream of bytes from one rank to another rank of the same node, in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ddprun/status.h"

namespace ddprun {

// One end of the stream: a view of the memory and a position. The memory of a new ring is all zero. Nothing that a
// process does, including its death at any point, affects bytes that it has published before.
//   Threads: one sender and one receiver, each with its own PairRing.
class PairRing {
 public:
  static constexpr size_t kAlign = 64;  // a cache line; the alignment of messages
  static constexpr size_t kCapacity = 256 << 10;
  static constexpr size_t kBytes = 4096 + kCapacity;  // of memory; a multiple of the page size

  // `memory`: kBytes bytes, aligned to a page. Not owned.
  explicit PairRing(void* memory);

  // The sender. Room() bytes can be put; what is put becomes visible to the receiver with Publish(). `wanted`: if there
  // is room for so much, the result may be less than the whole room.
  //   REQUIRES: n <= Room().
  size_t Room(size_t wanted);
  void Put(const void* data, size_t n);
  void Publish();

  // The receiver. Available() bytes can be taken; their memory is reused by the sender after Release().
  //   REQUIRES: n <= Available().
  size_t Available();
  void Take(void* out, size_t n);
  void Release();

  // Ends a message, on both sides, before Publish and Release: the next one starts in a new cache line, so a small
  // message is one line. Room() leaves room for the padding.
  void EndMessage();

 private:
  struct Control;
  Control& control() const;
  char* data() const { return memory_ + (kBytes - kCapacity); }

  char* const memory_;
  uint64_t position_ = 0;  // of this end, in bytes since the beginning
  uint64_t limit_ = 0;     // the newest known position of the other end
};

// The rings of a node with n local ranks lie behind the segment's mapped part, one for each ordered pair. Only the
// pages of rings that are used exist.
constexpr size_t PairRingsBytes(int num_ranks) {
  return static_cast<size_t>(num_ranks) * num_ranks * PairRing::kBytes;
}
constexpr size_t PairRingOffset(int num_ranks, int from, int to) {
  return (static_cast<size_t>(from) * num_ranks + to) * PairRing::kBytes;
}

// The mapped memory of one ring.
class PairRingMemory {
 public:
  // Reserves the pages and maps them. `offset`: in the file `fd`. Both ends call this for the same ring.
  //   Errors: kResourceExhausted: the machine has not enough memory; the message has the size.
  static StatusOr<PairRingMemory> Map(int fd, size_t offset);
  PairRingMemory(PairRingMemory&& other) noexcept : base_(other.base_) { other.base_ = nullptr; }
  PairRingMemory& operator=(PairRingMemory&&) = delete;
  ~PairRingMemory();

  void* get() const { return base_; }

 private:
  explicit PairRingMemory(void* base) : base_(base) {}
  void* base_;
};

}  // namespace ddprun
