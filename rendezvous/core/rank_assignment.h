// Who gets which rank in a round: a pure function of the members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace ddprun {

// What decides a node's place.
struct RankCandidate {
  std::optional<GroupRank> previous = {};  // its rank in the last round it was in; survivors keep their order
  std::optional<int> requested = {};       // --node-rank
  uint64_t arrival = 0;                    // order of joining; different for every node
  int nproc = 1;                           // >= 1
  std::string role = "default";
};

struct RankSpan {
  GroupRank group_rank;
  Rank first_rank;
  int first_role_rank = 0;
  int role_world_size = 0;
};

struct RankPlan {
  std::vector<RankSpan> spans;  // spans[i] belongs to candidates[i]
  int world_size = 0;
};

// Node order: by requested rank when every node has one; otherwise survivors in their old order, then
// newcomers, those with a requested rank first, each by it, the others by arrival. Ranks are consecutive
// along that order.
RankPlan AssignRanks(const std::vector<RankCandidate>& candidates);

}  // namespace ddprun
