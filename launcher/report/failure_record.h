// What is known of one worker that did not end well, and which of them is the cause.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "launcher/report/error_file.h"

namespace ddprun {

struct FailureRecord {
  Rank rank;
  LocalRank local_rank;
  std::string host;  // full name
  pid_t pid = 0;     // 0: never started
  ExitInfo exit;
  int64_t timestamp = 0;   // whole seconds of the wall clock: the worker's own, else when noticed
  std::string message;     // for the report; of a traceback, the lines after the first indented
  std::string error_file;  // empty: the worker left none
  std::optional<WorkerError> worker_error = {};  // what `error_file` says
  std::string stderr_tail = {};                  // last of its stderr; empty: none, or it could not be seen
};

// Everything a worker's end says by itself.
struct WorkerEnd {
  Rank rank;
  LocalRank local_rank;
  std::string host;
  pid_t pid = 0;
  ExitInfo exit;
  int64_t noticed = 0;  // whole seconds of the wall clock
};

// The record of one worker that has left no error file.
FailureRecord MakeFailureRecord(const WorkerEnd& end);
// The worker has left this one, at `error_file`.
void AddWorkerError(WorkerError error, const std::string& error_file, FailureRecord& record);

// Index of the root cause: the smallest timestamp, of equal ones the first.
//   REQUIRES: `failures` is not empty and in the order in which they were noticed.
size_t RootCause(const std::vector<FailureRecord>& failures);

}  // namespace ddprun
