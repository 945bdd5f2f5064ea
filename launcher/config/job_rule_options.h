// The rules of the job that have options of their own: base/job_rules.h says which.
#pragma once

#include "absl/status/statusor.h"
#include "base/job_rules.h"
#include "launcher/cli/options.h"

namespace ddprun {

// Errors: kInvalidArgument: a value that is none; a minimum or maximum that is no multiple of the unit.
absl::StatusOr<JobRules> ReadJobRules(const Options& options, int min_nodes, int max_nodes);

}  // namespace ddprun
