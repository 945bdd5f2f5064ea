// A worker of this node that did not succeed: its failure, and what only its own node needs to know of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/failure.h"
#include "launcher/report/error_file.h"

namespace ddprun {

struct FailureRecord {
  Failure failure;
  absl::Time noticed = {};              // when its end was noticed, by the wall clock
  std::optional<int> last_signal = {};  // the last signal that the launcher had sent it before that
  // As torchrun has them:
  int64_t timestamp = 0;        // whole seconds of the wall clock: the worker's own, else `noticed`
  std::string message = {};     // for the report; of a traceback, the lines after the first indented
  std::string error_file = {};  // empty: the worker left none
  std::optional<WorkerError> worker_error = {};  // what `error_file` says
};

// The record of one worker that has left no error file; failure.failed_at is when that was noticed.
FailureRecord MakeFailureRecord(Failure failure, absl::Time noticed);
// The worker has left this one, at `error_file`: it may have failed before it exited, see Failure::failed_at.
// A time that is not within the worker's life is ignored. Called once.
void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record);

// Index of the one that Precedes all others; of equal ones the first.
//   REQUIRES: `failures` is not empty.
size_t RootCause(const std::vector<FailureRecord>& failures);

}  // namespace ddprun
