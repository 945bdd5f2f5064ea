// A node's ranks and worker store in a sealed round, assigned by the coordinator.
#pragma once

#include <string>

#include "base/ids.h"

namespace ddprun {

struct Assignment {
  Round round = {};
  GroupRank group_rank = {};
  int group_world_size = 1;
  Rank first_rank = {};  // rank of the node's local_rank 0; the node's workers have consecutive ranks
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
  int restart_count = 0;         // failures charged to the job so far; the same on every node
  std::string master_addr = {};  // worker store of this round, on the node with group_rank 0
  int master_port = 0;

  bool operator==(const Assignment&) const = default;
};

}  // namespace ddprun
