// The failure of a worker on this node, with the details that are not sent to other nodes.
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
  absl::Time noticed = {};              // wall clock time at which the launcher noticed its end
  std::optional<int> last_signal = {};  // the launcher's last signal to it before `noticed`
  // As in torchrun's report:
  int64_t timestamp = 0;                         // wall clock, seconds: from the error file, else `noticed`
  std::string message = {};                      // lines of a traceback after the first are indented
  std::string error_file = {};                   // path; empty if the worker wrote none
  std::optional<WorkerError> worker_error = {};  // the contents of `error_file`
};

// Makes the record of a worker without an error file. `noticed` is failure.failed_at on the wall clock.
FailureRecord MakeFailureRecord(Failure failure, absl::Time noticed);
// Adds the error that the worker wrote to `error_file`. If the error occurred before the exit, moves
// failed_at back to it, see Failure::failed_at; a time outside the worker's lifetime is ignored. Call once
// per record.
void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record);

// Returns the index of the failure that Precedes() all others; if several are equal, the first.
//   REQUIRES: `failures` is not empty.
size_t RootCause(const std::vector<FailureRecord>& failures);

}  // namespace ddprun
