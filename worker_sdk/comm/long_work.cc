#include "worker_sdk/comm/long_work.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/text.h"
#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Maximum interval between a working rank's progress reports.
constexpr Duration kBeat = seconds(1);

// One rank's progress report.
struct Beat {
  int64_t done = 0;
  int64_t at_work = 0;  // 1 or 0
};

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Exchanges beats until no rank is working. A rank without work sends its beat immediately and blocks in the
// collective until the working ranks send theirs. `ended` is set when this rank's work has completed; null
// means that this rank has no work.
Status BeatUntilAllHaveEnded(Communicator comm, std::string_view what, Duration stall_limit,
                             const WorkProgress& progress, Event* ended) {
  const Duration beat = std::min<Duration>(kBeat, stall_limit / 4);
  std::vector<Beat> now(comm.size()), before(comm.size());
  std::vector<TimePoint> advanced(comm.size(), Now());
  while (true) {
    const bool at_work = ended != nullptr && !ended->WaitUntil(Now() + beat);
    const int64_t mine[] = {progress.done(), at_work ? 1 : 0};
    DDPRUN_RETURN_IF_ERROR(
        comm.AllGather({mine, 2, DType::kInt64}, {now.data(), 2 * comm.size(), DType::kInt64})
            .Wait(Now() + stall_limit),
        what);
    if (std::ranges::all_of(now, [](const Beat& b) { return b.at_work == 0; })) return OkStatus();
    for (int r = 0; r < comm.size(); ++r) {
      if (now[r].at_work == 0 || now[r].done != before[r].done) advanced[r] = Now();
      if (Now() - advanced[r] < stall_limit) continue;
      const std::string why =
          StrCat(what, ": rank ", r, " has made no progress for ", InSeconds(stall_limit));
      comm.Abort(why);
      return DeadlineExceededError(why);
    }
    before = now;
  }
}

}  // namespace

Status FinishTogether(Communicator comm, std::string_view what, Duration stall_limit, const LongWork& work) {
  WorkProgress progress;
  Event ended;
  std::thread worker;
  if (work) {
    worker = std::thread([&] {
      work(progress);
      ended.Set();
    });
  }
  const Status status = BeatUntilAllHaveEnded(comm, what, stall_limit, progress, work ? &ended : nullptr);
  if (worker.joinable()) worker.join();
  return status;
}

}  // namespace ddprun
