// Functions that ask a coordinator to change a running job.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

struct ControlTarget {
  std::string address;  // numeric address of the coordinator
  int port = 0;
  Duration timeout = seconds(10);  // time limit for the call, including the connection
};

// These functions block and return human-readable text that describes what happens next. `run_id` may be empty
// if the coordinator runs only one job.
//   Errors: kNotFound, kInvalidArgument, kFailedPrecondition: the coordinator rejected the request; see
//           proto/control.proto;
//           kUnavailable, kDeadlineExceeded: no reply arrived, or the coordinator is shutting down. The
//           request may have taken effect.

// Drains a node, that is, takes it out of its job. `node` is the id or the host of the node.
absl::StatusOr<std::string> DrainNode(const ControlTarget& target, const std::string& run_id,
                                      const std::string& node, const std::string& reason);
// Gives a node notice that it goes away in `left`, and joins again after `back_in`.
absl::StatusOr<std::string> PreemptNode(const ControlTarget& target, const std::string& run_id,
                                        const std::string& node, const std::string& reason, Duration left,
                                        std::optional<Duration> back_in);
// Stops a job on all its nodes.
absl::StatusOr<std::string> StopJob(const ControlTarget& target, const std::string& run_id,
                                    const std::string& reason);

// Returns the stacks of the workers of a job, or only that of `rank`, as text of several lines.
//   native: by gdb, which pauses the workers; otherwise the Python stacks.
absl::StatusOr<std::string> StacksOfJob(const ControlTarget& target, const std::string& run_id,
                                        std::optional<int> rank, bool native);

}  // namespace ddprun
