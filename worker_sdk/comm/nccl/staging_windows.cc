#include "worker_sdk/comm/nccl/staging_windows.h"

#include "base/check.h"

namespace ddprun {

StagingWindows::StagingWindows(std::span<char> memory, int num_queues)
    : small_(memory.first(num_queues * kSmallBytes)) {
  DDPRUN_CHECK(static_cast<int64_t>(memory.size()) == NumBytes(num_queues), memory.size());
  const std::span<char> large = memory.subspan(small_.size());
  for (int i = 0; i < NumLarge(num_queues); ++i)
    free_large_.push_back(large.subspan(i * kLargeBytes, kLargeBytes));
}

std::span<char> StagingWindows::Take(int queue, uint64_t message_bytes) {
  if (message_bytes <= kSmallBytes || free_large_.empty())
    return small_.subspan(queue * kSmallBytes, kSmallBytes);
  const std::span<char> window = free_large_.back();
  free_large_.pop_back();
  return window;
}

void StagingWindows::Release(std::span<char> window) {
  if (window.size() == kLargeBytes) free_large_.push_back(window);
}

}  // namespace ddprun
