#include "worker_sdk/ddp/link_cost.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSmallBytes = 16 << 10;
constexpr int64_t kMinLargeBytes = 64 << 10;
constexpr int64_t kMaxLargeBytes = 4 << 20;

// The median of the times of `times` all-reduces, in seconds, after one that is not counted.
StatusOr<double> MedianTime(Communicator& comm, Tensor buffer, int times, TimePoint deadline) {
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    const TimePoint begin = Clock::now();
    Work work = comm.AllReduce(buffer, ReduceOp::kSum);
    while (!work.Done() && Clock::now() < deadline) std::this_thread::yield();
    const TimePoint end = Clock::now();
    DDPRUN_RETURN_IF_ERROR(work.Wait(deadline));
    if (i > 0) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

StatusOr<AllReduceCost> MeasureAllReduce(Communicator comm, int64_t step_bytes, TimePoint deadline) {
  const int64_t large_bytes = std::clamp(step_bytes / 8, kMinLargeBytes, kMaxLargeBytes) / 4 * 4;
  std::vector<float> buffer(large_bytes / 4);
  DDPRUN_ASSIGN_OR_RETURN(const double small_s,
                          MedianTime(comm, {buffer.data(), kSmallBytes / 4, DType::kFloat32}, 4, deadline));
  DDPRUN_ASSIGN_OR_RETURN(const double large_s, MedianTime(comm, View(buffer), 2, deadline));
  const auto more_bytes = static_cast<double>(large_bytes - kSmallBytes);
  // If the large one is not slower, its whole time counts as that of its bytes.
  const double bytes_per_s = large_s > small_s ? more_bytes / (large_s - small_s)
                                               : static_cast<double>(large_bytes) / std::max(large_s, 1e-9);
  return AllReduceCost{.latency_s = std::max(0.0, small_s - kSmallBytes / bytes_per_s),
                       .bytes_per_s = bytes_per_s};
}

}  // namespace ddprun
