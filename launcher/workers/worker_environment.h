// The environment of a worker: the agent's variables, the job's variables, and defaults for libraries.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

struct NodeNetwork {
  std::string address = {};    // numeric; empty: unknown, or a single-node job
  std::string interface = {};  // has `address`; empty: unknown, or not an interface of this node
};

// The variables of this process, overridden by those of the --config file. Read once at start.
EnvVars BaseEnvironment(const LaunchConfig& config);

// What the agent provides for a worker, and the variables that name it; empty: not provided.
struct WorkerPlaces {
  std::string error_file = {};    // TORCHELASTIC_ERROR_FILE
  std::string agent_socket = {};  // DDPRUN_AGENT_SOCKET
  std::string timer_file = {};    // TORCHELASTIC_TIMER_FILE, a FIFO
  NodeNetwork network = {};       // DDPRUN_NODE_ADDR, GLOO_SOCKET_IFNAME
};

// The environment of worker `local_rank` of the node with `assignment`; see docs/worker_env.md.
//   base: the environment of the agent; the job's variables override it, and its values for libraries
//   (OMP_NUM_THREADS, ...) are kept.
//   REQUIRES: CheckVirtualDevices(base, config).ok().
EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const WorkerPlaces& places);

// True if the workers get OMP_NUM_THREADS=1: `base` lacks it and there are several workers, as in torchrun.
bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config);

// With --virtual-local-rank each worker sees one of the devices visible in `base`.
//   Errors: kFailedPrecondition, with the list: there are fewer devices than workers.
absl::Status CheckVirtualDevices(const EnvVars& base, const LaunchConfig& config);

// A shell command that starts a worker by hand, over several lines, with a final newline: taskset for `cpus`
// (if not empty), env with the differences between `own` and `worker`, `argv`.
//   own: the environment of the shell; worker: the complete environment of the worker.
std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus);

}  // namespace ddprun
