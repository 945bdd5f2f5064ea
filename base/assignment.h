// The ranks and the worker store that the coordinator assigns to a node in a sealed round.
#pragma once

#include <string>

#include "base/ids.h"

namespace ddprun {

struct Assignment {
  Round round = {};
  GroupRank group_rank = {};
  int group_world_size = 1;
  Rank first_rank = {};  // rank of the worker with local_rank 0; the node's workers have consecutive ranks
  int world_size = 1;
  int first_role_rank = 0;
  int role_world_size = 1;
  int restart_count = 0;         // restarts of the job so far; the same on every node
  std::string master_addr = {};  // address of the node with group_rank 0, which hosts the worker store
  int master_port = 0;           // port of the worker store

  bool operator==(const Assignment&) const = default;
};

}  // namespace ddprun
