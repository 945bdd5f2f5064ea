// The environment of a worker: the only place where its variables are named, written and read.
// docs/worker_env.md lists them. Names and values are torchrun's, except for DDPRUN_*.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct WorkerEnv {
  Rank rank;                          // RANK: 0..world_size-1
  LocalRank local_rank;               // LOCAL_RANK: 0..local_world_size-1; DDPRUN_LOCAL_RANK if virtual
  GroupRank group_rank;               // GROUP_RANK: the node's rank, 0..group_world_size-1
  int world_size = 1;                 // WORLD_SIZE: workers of the round, all nodes
  int local_world_size = 1;           // LOCAL_WORLD_SIZE: workers on this node
  int group_world_size = 1;           // GROUP_WORLD_SIZE: nodes of the round
  int role_rank = 0;                  // ROLE_RANK: among the workers of the same role
  int role_world_size = 1;            // ROLE_WORLD_SIZE
  std::string role_name = "default";  // ROLE_NAME
  // LOCAL_RANK is 0 for every worker, because each sees only one device.
  bool virtual_local_rank = false;
  std::string master_addr;   // MASTER_ADDR: host of the worker store (c10d TCP)
  int master_port = 0;       // MASTER_PORT: 1..65535
  bool agent_store = true;   // TORCHELASTIC_USE_AGENT_STORE; False: the worker with rank 0 hosts the store
  int restart_count = 0;     // TORCHELASTIC_RESTART_COUNT: failures charged to the job so far
  int max_restarts = 0;      // TORCHELASTIC_MAX_RESTARTS
  std::string run_id;        // TORCHELASTIC_RUN_ID
  std::string error_file;    // TORCHELASTIC_ERROR_FILE: where a failing worker writes its JSON; may be empty
  Round round;               // DDPRUN_ROUND: the round that the worker belongs to
  std::string agent_socket;  // DDPRUN_AGENT_SOCKET: abstract unix socket name of the agent, without the NUL;
                             // may be empty
  // DDPRUN_NODE_ADDR: numeric address at which workers of other nodes reach this node; empty: unknown, or the
  // job has one node.
  std::string node_addr;
  Duration lease{};  // DDPRUN_LEASE_MS: how long a silent node counts as alive; 0: unknown, or a single node

  bool operator==(const WorkerEnv&) const = default;
};

using EnvVars = std::vector<std::pair<std::string, std::string>>;

// All variables of `env`; the optional DDPRUN_* variables are omitted if they are empty or 0.
EnvVars EncodeWorkerEnv(const WorkerEnv& env);

// Decodes the variables that EncodeWorkerEnv wrote. `get` is getenv, or a map in tests. A process started by
// hand (no RANK and no WORLD_SIZE) gets world_size 1 and master_port 0. The variables that only ddprun sets
// (DDPRUN_*) may be missing, so that torchrun can start an SDK worker.
//   Errors: kInvalidArgument naming the variable and its value: not a number, a rank outside its world, a
//           port outside 1..65535, or a world of several workers without MASTER_ADDR or MASTER_PORT.
absl::StatusOr<WorkerEnv> DecodeWorkerEnv(
    const std::function<std::optional<std::string>(absl::string_view name)>& get);

// Decodes the environment of this process.
absl::StatusOr<WorkerEnv> WorkerEnvFromProcess();

}  // namespace ddprun
