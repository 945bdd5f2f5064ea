// What Open MPI's mpirun says about the job that this process belongs to.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

// Reads the environment of a rank of Open MPI. Returns nullopt if mpirun did not start this process. Rank 0 must be on the
// node where mpirun runs: its address is the only one that the other ranks know.
//   num_cpus: the CPUs that this process may use, for the warning that mpirun has bound it to few.
//   Errors: kInvalidArgument: a variable has no valid value; the message has the variable, its value, and the remedy.
absl::StatusOr<std::optional<ScheduledJob>> FindOpenMpiRank(const GetEnv& get_env, int num_cpus);

}  // namespace ddprun
