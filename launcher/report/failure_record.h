// The failure of a worker on this node, including the details that are not sent to other nodes.
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
  absl::Time noticed = {};              // wall-clock time at which the launcher noticed the worker's end
  std::optional<int> last_signal = {};  // last signal from the launcher to the worker before `noticed`
  // Values for torchrun's report:
  int64_t timestamp = 0;     // seconds since 1970; from the error file if there is one, otherwise `noticed`
  std::string message = {};  // in a traceback, all lines except the first are indented
  std::string error_file = {};                   // path; empty if the worker wrote no error file
  std::optional<WorkerError> worker_error = {};  // the contents of `error_file`
};

// Returns the record of a worker without an error file. `noticed` is failure.failed_at on the wall clock.
FailureRecord MakeFailureRecord(Failure failure, absl::Time noticed);
// Adds the error that the worker wrote to `error_file`. If the error occurred before the exit, sets failed_at
// to the time of the error (see Failure::failed_at). Ignores a time outside the worker's lifetime. Call at
// most once per record.
void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record);

// Returns the index of the failure that Precedes() all others. If several failures are equal, returns the
// index of the first of them.
//   REQUIRES: `failures` is not empty.
size_t RootCause(const std::vector<FailureRecord>& failures);

}  // namespace ddprun
