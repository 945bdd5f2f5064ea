// Everything a worker finds in its environment: the agent's own, the job's variables, and defaults for
// libraries.
#pragma once

#include <string>

#include "base/assignment.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// The variables of this process. Read once at start.
EnvVars CurrentEnvironment();

// For the worker `local_rank` of the node that got `assignment`. docs/worker_env.md lists what is set.
//   `base` is what the agent was started with; the job's variables win over it, its values for libraries
//   (OMP_NUM_THREADS, ...) stay.
EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const std::string& error_file,
                          const std::string& agent_socket);

// True if OMP_NUM_THREADS is set to 1 for the workers because nobody said otherwise: torchrun's rule.
bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config);

}  // namespace ddprun
