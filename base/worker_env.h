// Encodes and decodes the environment variables of a worker, which docs/worker_env.md lists. Names and values
// are those of torchrun, except for the DDPRUN_* variables.
// Free of Abseil, because it is part of the worker library.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct WorkerEnv {
  Rank rank;                          // RANK: 0..world_size-1
  LocalRank local_rank;               // LOCAL_RANK: 0..local_world_size-1; see also virtual_local_rank
  GroupRank group_rank;               // GROUP_RANK: the node's rank, 0..group_world_size-1
  int world_size = 1;                 // WORLD_SIZE: number of workers in the round, on all nodes
  int local_world_size = 1;           // LOCAL_WORLD_SIZE: number of workers on this node
  int group_world_size = 1;           // GROUP_WORLD_SIZE: number of nodes in the round
  int role_rank = 0;                  // ROLE_RANK: rank among the workers with the same role
  int role_world_size = 1;            // ROLE_WORLD_SIZE: number of workers with the same role
  std::string role_name = "default";  // ROLE_NAME
  // If true, LOCAL_RANK is 0 for every worker, because each worker sees only one device. DDPRUN_LOCAL_RANK
  // then has the value of local_rank.
  bool virtual_local_rank = false;
  std::string master_addr;  // MASTER_ADDR: host of the worker store (c10d TCP)
  int master_port = 0;      // MASTER_PORT: 1..65535
  bool agent_store = true;  // TORCHELASTIC_USE_AGENT_STORE: if false, the worker with rank 0 hosts the store
  int restart_count = 0;    // TORCHELASTIC_RESTART_COUNT: failures charged to the job so far
  int max_restarts = 0;     // TORCHELASTIC_MAX_RESTARTS
  std::string run_id;       // TORCHELASTIC_RUN_ID
  // TORCHELASTIC_ERROR_FILE: the file to which a failing worker writes its error as JSON; may be empty.
  std::string error_file;
  Round round;  // DDPRUN_ROUND: the round that the worker belongs to
  // DDPRUN_AGENT_SOCKET: name of the agent's abstract unix socket, without the leading NUL; may be empty.
  std::string agent_socket;
  // DDPRUN_NODE_ADDR: numeric address at which workers on other nodes reach this node. Empty if it is unknown
  // or if the job has only one node.
  std::string node_addr;
  // DDPRUN_LEASE_MS: how long a silent node counts as alive. 0 if unknown or if the job has only one node.
  Duration lease{};

  bool operator==(const WorkerEnv&) const = default;
};

using EnvVars = std::vector<std::pair<std::string, std::string>>;

// Returns the variables for `env`. Omits DDPRUN_LOCAL_RANK unless virtual_local_rank is true, and omits
// DDPRUN_AGENT_SOCKET, DDPRUN_NODE_ADDR and DDPRUN_LEASE_MS if they are empty or 0.
EnvVars EncodeWorkerEnv(const WorkerEnv& env);

// Decodes the variables that EncodeWorkerEnv wrote. `get` returns the value of a variable, or nullopt if the
// variable is not set. Every variable may be missing: the environment of a process started by hand decodes to
// a world of one worker with master_port 0, and torchrun, which sets no DDPRUN_* variables, can start workers
// that use the SDK. Returns nullopt, and a text with the variable and its value in `error`, if a value is
// malformed or out of range, or if WORLD_SIZE is at least 2 and MASTER_ADDR or MASTER_PORT is missing.
std::optional<WorkerEnv> DecodeWorkerEnv(
    const std::function<std::optional<std::string>(std::string_view name)>& get, std::string* error);

// Decodes the environment of this process.
std::optional<WorkerEnv> WorkerEnvFromProcess(std::string* error);

}  // namespace ddprun
