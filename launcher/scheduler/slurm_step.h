// What Slurm says about the step that this process belongs to.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

// Reads the environment of a step of Slurm. Returns nullopt if srun did not start this process: in a batch script, or in a
// shell for interactive use, ddprun runs on this node only, as torchrun does.
//   Errors: kInvalidArgument: a variable has no valid value, or they contradict each other; the message has the variable, its
//           value, and the remedy.
absl::StatusOr<std::optional<ScheduledJob>> FindSlurmStep(const GetEnv& get_env);

}  // namespace ddprun
