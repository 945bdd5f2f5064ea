// Records the failures of this node's workers in one round, for the coordinator and for the failure report.
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

// The failures of one round at a time.
//   Threads: one caller at a time.
class NodeFailures {
 public:
  // Details that are known when a worker's end is detected and that are not in Failure.
  struct Notice {
    absl::Time time = {};                 // when the end was detected, on the wall clock
    std::string progress = {};            // the worker's progress, as a clause for FailureCause; may be empty
    std::optional<int> last_signal = {};  // last signal that the launcher sent to the worker
  };
  // Functions that return details of a worker's failure. They are called after all workers have ended.
  struct Afterwards {
    std::function<std::string(LocalRank)> stderr_tail;                   // empty if stderr is not available
    std::function<bool(LocalRank)> tail_has_stdout;                      // true if the tail includes stdout
    std::function<std::vector<std::string>(pid_t)> evidence_of_sigkill;  // one finding per line
    std::function<std::vector<std::string>(const Failure&)> evidence_of_gpus;
  };

  // `host` is this node's short name.
  NodeFailures(std::string host, std::string role);

  void BeginRound(const Assignment& assignment);
  // Adds a record of a worker's failure, and returns the index of the record in records().
  //   end: the caller sets local_rank, pid, exit, failed_at (when the end was detected), uptime and step. Add
  //        sets the other fields.
  //   REQUIRES: the worker did not succeed.
  size_t Add(Failure end, const Notice& notice);
  // Adds a record of a worker that has parked without being asked, because of the error `why`.
  //   end: as for Add, with Exited{1}.
  void AddParked(Failure end, absl::Time time, const std::string& why);
  // Adds `error`, read from `error_file`, to the record with this index.
  void AddError(size_t index, WorkerError error, const std::string& error_file);
  // Adds the details from `afterwards` to every record. Must be called after all workers have ended.
  void Complete(const Afterwards& afterwards);

  bool empty() const { return records_.empty(); }
  // Returns all records in the order of the Add calls, for the report in torchrun's format.
  const std::vector<FailureRecord>& records() const { return records_; }

  // Returns what is known so far about this worker's failure, in the form sent to the coordinator.
  //   REQUIRES: Add was called for this worker.
  Failure Of(LocalRank local_rank) const;
  // Returns the failures whose origin is not kStopped, in the form sent to the coordinator: at most 64,
  // ordered by Precedes. Only the first four failures that differ in exit or exception have a stderr tail.
  std::vector<Failure> All() const;

 private:
  // Derives the exception and the origin of `record` from what is known so far.
  void SetExceptionAndOrigin(FailureRecord& record) const;

  const std::string host_;
  const std::string role_;
  Assignment assignment_;
  std::vector<FailureRecord> records_;  // failures of the current round
};

// Returns, for example, "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57".
//   progress: see NodeFailures::Notice.
std::string FailureCause(const Failure& failure, absl::string_view progress);

}  // namespace ddprun
