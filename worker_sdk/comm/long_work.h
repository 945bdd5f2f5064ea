// Work of some ranks for which the others wait longer than a deadline of a collective allows: writing or
// reading a snapshot.
//
//   absl::Status written;
//   LongWork write = [&](WorkProgress& progress) { written = store.Write(snapshot, progress); };
//   RETURN_IF_ERROR(FinishTogether(comm, "writing a snapshot", seconds(300), is_first_rank ? write :
//   nullptr));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "worker_sdk/comm/communicator.h"

namespace ddprun {

// How far a rank's work has come, in whatever grows: bytes, files.
//   Threads: any.
class WorkProgress {
 public:
  void Advance(int64_t count = 1) { done_.fetch_add(count, std::memory_order_relaxed); }
  [[nodiscard]] int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> done_{0};
};

using LongWork = std::function<void(WorkProgress&)>;

// Runs `work` of this rank (null: it has none) in a thread of its own, and returns when that of all ranks has
// ended, however long it takes, as long as each rank that is at work lives and advances its progress at least
// once in `stall_limit`. All ranks call it, with equal limits. Returns only when the work of this rank has
// ended, also after an error.
//   what:   for the error, such as "writing the snapshot of step 40".
//   Errors: kDeadlineExceeded: a rank made no progress, or was stopped; others are Pending::Wait's. After any
//           the communicator is dead. What came of the work is the caller's to tell.
absl::Status FinishTogether(Communicator* comm, absl::string_view what, Duration stall_limit,
                            const LongWork& work);

}  // namespace ddprun
