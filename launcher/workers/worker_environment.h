// Everything a worker finds in its environment: the agent's own, the job's variables, and defaults for
// libraries.
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
  std::string address = {};    // numeric; empty: unknown, or a job of one node
  std::string interface = {};  // that has it; empty: no interface of this node, or unknown
};

// The variables of this process, with the job's --config file's over them. Read once at start.
EnvVars BaseEnvironment(const LaunchConfig& config);

// Where a worker finds what its agent has for it; empty: there is none.
struct WorkerPlaces {
  std::string error_file = {};    // TORCHELASTIC_ERROR_FILE
  std::string agent_socket = {};  // DDPRUN_AGENT_SOCKET
  std::string timer_file = {};    // TORCHELASTIC_TIMER_FILE, a FIFO
  NodeNetwork network = {};       // DDPRUN_NODE_ADDR, GLOO_SOCKET_IFNAME
};

// For the worker `local_rank` of the node that got `assignment`. docs/worker_env.md lists what is set.
//   `base` is what the agent was started with; the job's variables win over it, its values for libraries
//   (OMP_NUM_THREADS, ...) stay.
//   REQUIRES: CheckVirtualDevices(base, config).ok().
EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const WorkerPlaces& places);

// True if OMP_NUM_THREADS is set to 1 for the workers because nobody said otherwise: torchrun's rule.
bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config);

// With --virtual-local-rank each worker sees one device of those that `base` leaves visible.
//   Errors: kFailedPrecondition, naming the list: there are fewer than workers.
absl::Status CheckVirtualDevices(const EnvVars& base, const LaunchConfig& config);

// How a worker is started, for people who want to start it by hand.

// A command for a shell, over several lines, the last with its newline: taskset for `cpus`, if there are any,
// env with what differs between `own` and `worker`, `argv`.
//   own: the environment of the shell; worker: all of the worker's.
std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus);

}  // namespace ddprun
