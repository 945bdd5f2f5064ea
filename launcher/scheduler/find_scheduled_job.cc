#include "launcher/scheduler/find_scheduled_job.h"

#include "base/status_macros.h"
#include "launcher/scheduler/host_file_task.h"
#include "launcher/scheduler/open_mpi_rank.h"
#include "launcher/scheduler/slurm_step.h"

namespace ddprun {

absl::StatusOr<std::optional<ScheduledJob>> FindScheduledJob(const GetEnv& get_env, const ReadFile& read_file,
                                                             const HostFacts& host) {
  ASSIGN_OR_RETURN(std::optional<ScheduledJob> found, FindOpenMpiRank(get_env, host.num_cpus));
  if (found) return found;
  ASSIGN_OR_RETURN(found, FindSlurmStep(get_env));
  if (found) return found;
  ASSIGN_OR_RETURN(found, FindPbsTask(get_env, read_file, host.name));
  if (found) return found;
  return FindLsfTask(get_env, read_file, host.name);
}

}  // namespace ddprun
