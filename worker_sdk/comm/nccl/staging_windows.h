// Divides the pinned memory of a group among the queues of its messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddprun {

// Each queue, which is one direction of a pair of ranks, has a small window of its own, so that no message waits for another
// queue. Larger messages use one of a few large windows while there is one.
//   Threads: one caller.
class StagingWindows {
 public:
  static constexpr size_t kSmallBytes = 32 << 10;
  static constexpr size_t kLargeBytes = 1 << 20;
  static constexpr int kMaxLarge = 8;

  // The memory that the windows need.
  static constexpr int64_t NumBytes(int num_queues) {
    return static_cast<int64_t>(num_queues) * kSmallBytes + NumLarge(num_queues) * int64_t{kLargeBytes};
  }

  StagingWindows() = default;  // for no queues
  // memory: [NumBytes(num_queues)]. Not owned.
  StagingWindows(std::span<char> memory, int num_queues);

  // The window for a message of a queue, until it is released.
  //   REQUIRES: the queue has no window now.
  std::span<char> Take(int queue, uint64_t message_bytes);
  void Release(std::span<char> window);

 private:
  static constexpr int NumLarge(int num_queues) { return num_queues < kMaxLarge ? num_queues : kMaxLarge; }

  std::span<char> small_;  // window q begins at q * kSmallBytes
  std::vector<std::span<char>> free_large_;
};

}  // namespace ddprun
