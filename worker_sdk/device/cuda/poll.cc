#include "worker_sdk/device/cuda/poll.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "worker_sdk/core/strings.h"

namespace ddprun {

Status PollUntil(const CudaContext& context, TimePoint deadline, std::string_view what,
                 FunctionRef<StatusOr<bool>()> done) {
  constexpr int kCallsWithoutPause = 20;
  constexpr Duration kMinPause = std::chrono::microseconds(20), kMaxPause = milliseconds(1);
  const TimePoint start = std::chrono::steady_clock::now();
  Duration pause = kMinPause;
  for (int64_t i = 0;; ++i) {
    DDPRUN_ASSIGN_OR_RETURN(const bool is_done, done(), StrCat("waiting for ", what));
    if (is_done) return OkStatus();
    const TimePoint now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      const double waited = std::chrono::duration<double>(now - start).count();
      return DeadlineExceededError(
          StrCat("GPU ", context.index(), " has not finished ", what, " after ", Format("%.1f s", waited)));
    }
    if (i < kCallsWithoutPause) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::min(pause, deadline - now));
    pause = std::min(2 * pause, kMaxPause);
  }
}

}  // namespace ddprun
