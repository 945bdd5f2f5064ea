// Failures of this node's workers in one round: recorded as workers end, sent to the coordinator, reported.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/assignment.h"
#include "base/failure.h"
#include "base/ids.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

//   Threads: one caller at a time.
class NodeFailures {
 public:
  // What is known when an end is noticed, besides the failure itself.
  struct Notice {
    absl::Time time = {};                 // wall clock
    std::string progress = {};            // the worker's progress, as a clause of the cause; may be empty
    std::optional<int> last_signal = {};  // last signal that the launcher sent to the worker
  };
  // What is known only after all workers have ended.
  struct Afterwards {
    std::function<std::string(LocalRank)> stderr_tail;                   // empty: not available
    std::function<bool(LocalRank)> tail_has_stdout;                      // the tail holds both streams
    std::function<std::vector<std::string>(pid_t)> evidence_of_sigkill;  // lines
  };

  // `host`: this node's short name.
  NodeFailures(std::string host, std::string role);

  void BeginRound(const Assignment& assignment);
  // `end`: has local_rank, pid, exit, failed_at (when the end was noticed), uptime and step; the other fields
  // are set here. Returns the index in records().
  //   REQUIRES: the worker did not succeed.
  size_t Add(Failure end, const Notice& notice);
  // `error`: contents of `error_file`, the error file of the worker with this index.
  void AddError(size_t index, WorkerError error, const std::string& error_file);
  void Complete(const Afterwards& afterwards);

  bool empty() const { return records_.empty(); }
  // In the order of Add; for the report in torchrun's format.
  const std::vector<FailureRecord>& records() const { return records_; }

  // The failure of this worker as known so far, as sent to the coordinator.
  //   REQUIRES: it was added.
  Failure Of(LocalRank local_rank) const;
  // All failures except kStopped, as sent to the coordinator: ordered by Precedes, at most 64, with the
  // stderr of the first four distinct ones.
  std::vector<Failure> All() const;

 private:
  // From what is known so far.
  void SetExceptionAndOrigin(FailureRecord& record) const;

  const std::string host_;
  const std::string role_;
  Assignment assignment_;
  std::vector<FailureRecord> records_;  // of the round
};

// "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57". `progress`: see NodeFailures::Notice.
std::string FailureCause(const Failure& failure, absl::string_view progress);

}  // namespace ddprun
