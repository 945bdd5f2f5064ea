// Work that only some ranks do, such as writing or reading a snapshot, while the other ranks wait for longer
// than a collective's deadline allows.
//
//   Status written;
//   LongWork write = [&](WorkProgress& progress) { written = store.Write(snapshot, progress); };
//   DDPRUN_RETURN_IF_ERROR(
//       FinishTogether(comm, "writing a snapshot", seconds(300), is_first_rank ? write : nullptr));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"

namespace ddprun {

// Progress of a rank's work, as a count that never decreases. The caller chooses the unit, such as bytes or
// files.
//   Threads: any.
class WorkProgress {
 public:
  void Advance(int64_t count = 1) { done_.fetch_add(count, std::memory_order_relaxed); }
  [[nodiscard]] int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> done_{0};
};

using LongWork = std::function<void(WorkProgress&)>;

// Runs this rank's `work` on a separate thread, and returns when the work of all ranks has completed. A null
// `work` means that this rank has no work. The total time is not limited, but each working rank must advance
// its progress at least once every `stall_limit`. All ranks must call FinishTogether with equal limits. Even
// on error, FinishTogether returns only after this rank's work has completed.
//   what:   describes the work in errors, such as "writing the snapshot of step 40".
//   Errors: kDeadlineExceeded: a rank made no progress or was stopped; otherwise those of Work::Wait.
//           After any error the communicator is dead. The status does not include the result of the work:
//           `work` must report its own result to the caller.
Status FinishTogether(Communicator comm, std::string_view what, Duration stall_limit, const LongWork& work);

}  // namespace ddprun
