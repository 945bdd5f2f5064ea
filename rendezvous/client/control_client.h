// Requests to a coordinator to change a running job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// The address of the coordinator, numeric, and the timeout of its reply.
struct ControlTarget {
  std::string address;
  int port = 0;
  Duration timeout = seconds(10);
};

// Both functions block and return a text for people that describes what happens next. `run_id` may be empty
// if there is one job.
//   Errors: kNotFound, kInvalidArgument, kFailedPrecondition: from the coordinator; see proto/control.proto;
//           kUnavailable, kDeadlineExceeded: it did not answer; the job may have been changed.

// Takes a node out, by its id or its host.
absl::StatusOr<std::string> DrainNode(const ControlTarget& target, const std::string& run_id,
                                      const std::string& node, const std::string& reason);
// Ends a job.
absl::StatusOr<std::string> StopJob(const ControlTarget& target, const std::string& run_id,
                                    const std::string& reason);

}  // namespace ddprun
