// A worker of this node that failed: its failure and the details that stay on the node.
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
  absl::Time noticed = {};              // when its end was noticed, wall clock
  std::optional<int> last_signal = {};  // the last signal that the launcher sent it before that
  // As in torchrun's report:
  int64_t timestamp = 0;                         // seconds, wall clock: of the error file, else of `noticed`
  std::string message = {};                      // lines of a traceback after the first are indented
  std::string error_file = {};                   // path; empty: the worker left none
  std::optional<WorkerError> worker_error = {};  // the contents of `error_file`
};

// Makes the record of a worker without an error file. `noticed` is failure.failed_at on the wall clock.
FailureRecord MakeFailureRecord(Failure failure, absl::Time noticed);
// Adds the error that the worker left at `error_file`. Moves failed_at back if the error is older than the
// exit, see Failure::failed_at; a time outside the worker's life is ignored. Called once for each record.
void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record);

// Index of the failure that Precedes all others; the first of equal ones.
//   REQUIRES: `failures` is not empty.
size_t RootCause(const std::vector<FailureRecord>& failures);

}  // namespace ddprun
