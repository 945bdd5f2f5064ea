// What NCCL's RAS subsystem knows of the operations of its processes. NCCL 2.28 and later answer in JSON; earlier releases are not read.
//
// RAS listens on localhost:28028, or on NCCL_RAS_ADDR, in one or several processes of the host, of any job. A connection reaches any of
// them, and the answer covers all hosts of that job. Each question makes NCCL ask all processes of the job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "base/worker_evidence.h"

namespace ddprun {

// The collective operations of one process, in all its communicators.
struct RasCounts {
  uint64_t launched = 0;  // their number, over all communicators
  // The process waits in a communicator in which it has launched an operation that another rank has not; or it waits in none, but has not
  // launched an operation that others have. nullopt: no communicator has ranks with different counts.
  std::optional<bool> waits = {};
  int64_t number = 0;  // of its last operation in that communicator, from 0; meaningful with `waits`

  bool operator==(const RasCounts&) const = default;
};

// Reads an answer of RAS. Pure. Returns the counts of the processes in `pids` whose host is in `addresses`, the numeric addresses of
// this host: processes of other hosts may have equal process ids.
//   Errors: kInvalidArgument: the answer has another format.
absl::StatusOr<std::map<pid_t, RasCounts>> ParseRas(absl::string_view answer, const std::set<pid_t>& pids,
                                                    const std::set<std::string>& addresses);

// Asks for the counts of `pids`. Blocks, at most for `limit`.
//   Errors: kUnavailable: RAS does not listen, or its answers know none of `pids`; kDeadlineExceeded: no answer within `limit`; those
//           of ParseRas and ParseEndpoint, for NCCL_RAS_ADDR.
absl::StatusOr<std::map<pid_t, RasCounts>> AskRas(const std::set<pid_t>& pids, Duration limit);

// The same for workers: of the first of their processes (ProcessesOf) that RAS knows. Workers of which it knows none are not in the result;
// nullopt if it knows of no worker.
std::optional<std::map<pid_t, RasCounts>> AskRasOfWorkers(const std::vector<pid_t>& workers, Duration limit);

// The operation of a worker with these counts; nullopt if `waits` is.
std::optional<WorkerEvidence::Operation> OperationOf(const RasCounts& counts);

}  // namespace ddprun
