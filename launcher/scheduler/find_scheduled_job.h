// Finds the scheduler or launcher that started this process.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

// Inputs that the environment does not contain.
struct HostFacts {
  std::string name;  // of this host, with or without its domain
  int num_cpus = 1;  // that this process may use
};

// Returns the job of mpirun, Slurm, PBS or LSF that this process belongs to; nullopt if none of them started it. mpirun takes
// precedence, because it may use one of the others to start its processes.
//   Errors: kInvalidArgument: see FindOpenMpiRank, FindSlurmStep, FindPbsTask and FindLsfTask.
absl::StatusOr<std::optional<ScheduledJob>> FindScheduledJob(const GetEnv& get_env, const ReadFile& read_file,
                                                             const HostFacts& host);

}  // namespace ddprun
