// Asks a coordinator to change a running job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Where the coordinator listens, and how long it may take to answer; the address is numeric.
struct ControlTarget {
  std::string address;
  int port = 0;
  Duration timeout = seconds(10);
};

// Both block, and return, for people, what happens now. `run_id` may be empty when there is one job.
//   Errors: kNotFound, kInvalidArgument, kFailedPrecondition: the coordinator's, proto/control.proto has
//   them;
//           kUnavailable, kDeadlineExceeded: it did not answer; the job may have been changed.

// Takes a node out, by its id or its host.
absl::StatusOr<std::string> DrainNode(const ControlTarget& target, const std::string& run_id,
                                      const std::string& node, const std::string& reason);
// Ends a job.
absl::StatusOr<std::string> StopJob(const ControlTarget& target, const std::string& run_id,
                                    const std::string& reason);

}  // namespace ddprun
