// The environment of a worker: the agent's variables, the job's variables, and defaults for libraries.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/exit_info.h"
#include "base/worker_env.h"
#include "base/worker_message.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

struct NodeNetwork {
  std::string address = {};  // numeric; empty if unknown or in a single-node job
  // The network interface that has `address`; empty if unknown, or if no interface of this node has it.
  std::string interface = {};
};

// Returns this process's environment variables, overridden by those in the --config file.
EnvVars BaseEnvironment(const LaunchConfig& config);

// Paths and addresses that the agent provides for a worker, each with the environment variable that contains
// it. A field is empty if the agent does not provide it.
struct WorkerPlaces {
  std::string error_file = {};      // TORCHELASTIC_ERROR_FILE
  std::string agent_socket = {};    // DDPRUN_AGENT_SOCKET
  std::string timer_file = {};      // TORCHELASTIC_TIMER_FILE, a FIFO
  std::string notice_file = {};     // DDPRUN_NOTICE_FILE; see notice_file.h
  std::string heartbeat_file = {};  // DDPRUN_HEARTBEAT_FILE; see heartbeat_files.h
  NodeNetwork network = {};         // DDPRUN_NODE_ADDR, GLOO_SOCKET_IFNAME
};

// Returns the environment of worker `local_rank` on the node with `assignment`; see docs/worker_env.md.
//   base: the environment of the agent. The job's variables override those in `base`; the defaults for
//         libraries (OMP_NUM_THREADS, ...) do not.
//   REQUIRES: CheckVirtualDevices(base, config).ok().
EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const WorkerPlaces& places);

// Returns the signals that new workers ignore unless the program installs a handler: a scheduler may send a signal of
// --preempt-signal to all processes of a node, and SIGUSR1 and SIGUSR2 would end a program that does not expect them.
std::vector<int> SignalsIgnoredByWorkers(const LaunchConfig& config);

// Returns the signal of --preempt-signal that is behind the end of a worker; nullopt: none.
std::optional<int> NoticeBehind(const ExitInfo& exit, const LaunchConfig& config);

// Returns the offer of its place in the round to worker `local_rank`, which has survived the round before. A worker that is
// started in this place finds the same values in its environment.
RoundOffer OfferFor(const LaunchConfig& config, const Assignment& assignment, LocalRank local_rank,
                    const NodeNetwork& network);

// Returns true if the workers get OMP_NUM_THREADS=1: `base` does not set the variable, and there is more
// than one worker. torchrun has the same rule.
bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config);

// With --virtual-local-rank, checks that each worker can get its own device from the devices visible in
// `base`.
//   Errors: kFailedPrecondition: `base` lists fewer devices than workers. The message contains the list.
absl::Status CheckVirtualDevices(const EnvVars& base, const LaunchConfig& config);

// Returns a shell command with which a user can start the worker: taskset for `cpus` (if not empty), then
// env with the differences between `own` and `worker`, then `argv`. The text has several lines and ends with
// a newline.
//   own:    the environment of the shell.
//   worker: the complete environment of the worker.
std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus);

}  // namespace ddprun
