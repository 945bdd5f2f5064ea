// Requests to a coordinator to change a running job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// The numeric address of the coordinator, and the timeout for its reply.
struct ControlTarget {
  std::string address;
  int port = 0;
  Duration timeout = seconds(10);
};

// Both functions block and return a text for people that describes what happens next. `run_id` may be empty
// if there is one job.
//   Errors: kNotFound, kInvalidArgument, kFailedPrecondition: from the coordinator; see proto/control.proto;
//           kUnavailable, kDeadlineExceeded: no reply; the job may have been changed.

// Takes a node, given by its id or host, out of its job.
absl::StatusOr<std::string> DrainNode(const ControlTarget& target, const std::string& run_id,
                                      const std::string& node, const std::string& reason);
// Ends a job.
absl::StatusOr<std::string> StopJob(const ControlTarget& target, const std::string& run_id,
                                    const std::string& reason);

}  // namespace ddprun
