// Failures of this node's workers in one round: recorded as workers end, for the coordinator and the report.
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
  // What is known, besides the failure itself, when the end of a worker is noticed.
  struct Notice {
    absl::Time time = {};                 // wall clock
    std::string progress = {};            // the worker's progress, as a clause for FailureCause; may be empty
    std::optional<int> last_signal = {};  // last signal that the launcher sent to the worker
  };
  // What is known only after all workers have ended.
  struct Afterwards {
    std::function<std::string(LocalRank)> stderr_tail;                   // empty: not available
    std::function<bool(LocalRank)> tail_has_stdout;                      // the tail includes stdout
    std::function<std::vector<std::string>(pid_t)> evidence_of_sigkill;  // one string per line
  };

  // `host`: this node's short name.
  NodeFailures(std::string host, std::string role);

  void BeginRound(const Assignment& assignment);
  // Returns the index of the new record in records().
  //   end: the caller sets local_rank, pid, exit, failed_at (when the end was noticed), uptime and step; Add
  //        sets the other fields.
  //   REQUIRES: the worker did not succeed.
  size_t Add(Failure end, const Notice& notice);
  // Adds `error`, read from `error_file`, to the record with this index.
  void AddError(size_t index, WorkerError error, const std::string& error_file);
  void Complete(const Afterwards& afterwards);

  bool empty() const { return records_.empty(); }
  // In the order of Add; for the report in torchrun's format.
  const std::vector<FailureRecord>& records() const { return records_; }

  // What is known so far about this worker's failure, in the form sent to the coordinator.
  //   REQUIRES: Add was called for this worker.
  Failure Of(LocalRank local_rank) const;
  // All failures except kStopped, in the form sent to the coordinator: at most 64, ordered by Precedes; only
  // the first four distinct ones have a stderr tail.
  std::vector<Failure> All() const;

 private:
  // Uses what is known so far.
  void SetExceptionAndOrigin(FailureRecord& record) const;

  const std::string host_;
  const std::string role_;
  Assignment assignment_;
  std::vector<FailureRecord> records_;  // failures of the current round
};

// "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57". `progress`: see NodeFailures::Notice.
std::string FailureCause(const Failure& failure, absl::string_view progress);

}  // namespace ddprun
