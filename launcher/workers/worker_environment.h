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
  std::string interface = {};  // interface with `address`; empty: unknown, or this node has no such interface
};

// This process's environment variables, overridden by those in the --config file. Called once at startup.
EnvVars BaseEnvironment(const LaunchConfig& config);

// Paths and addresses that the agent provides for a worker, each with the environment variable that carries
// it; empty: not provided.
struct WorkerPlaces {
  std::string error_file = {};    // TORCHELASTIC_ERROR_FILE
  std::string agent_socket = {};  // DDPRUN_AGENT_SOCKET
  std::string timer_file = {};    // TORCHELASTIC_TIMER_FILE, a FIFO
  NodeNetwork network = {};       // DDPRUN_NODE_ADDR, GLOO_SOCKET_IFNAME
};

// The environment of worker `local_rank` on the node with `assignment`; see docs/worker_env.md.
//   base: the environment of the agent. The job's variables override those in `base`; the defaults for
//         libraries (OMP_NUM_THREADS, ...) do not.
//   REQUIRES: CheckVirtualDevices(base, config).ok().
EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const WorkerPlaces& places);

// True if the workers get OMP_NUM_THREADS=1. As in torchrun, they do if `base` does not set the variable and
// there is more than one worker.
bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config);

// Checks that with --virtual-local-rank each worker can get its own device, of those visible in `base`.
//   Errors: kFailedPrecondition: there are fewer devices than workers; the message lists the devices.
absl::Status CheckVirtualDevices(const EnvVars& base, const LaunchConfig& config);

// A shell command that starts a worker by hand: taskset for `cpus` (if not empty), then env with the
// differences between `own` and `worker`, then `argv`. The text has several lines and ends with a newline.
//   own:    the environment of the shell.
//   worker: the complete environment of the worker.
std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus);

}  // namespace ddprun
