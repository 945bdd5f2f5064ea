// Assignment of ranks in a round: a pure function of the members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/assignment.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// The properties of a node that determine its rank.
struct RankCandidate {
  std::optional<GroupRank> previous = {};  // rank in its last round; survivors keep their order
  std::optional<int> requested = {};       // --node-rank
  uint64_t arrival = 0;                    // order of joining; unique
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

// Assigns consecutive ranks. Node order: by requested rank if every node has one; otherwise survivors in
// their previous order, then newcomers with a requested rank by that rank, then other newcomers by arrival.
RankPlan AssignRanks(const std::vector<RankCandidate>& candidates);

// Returns how many of `nodes` nodes a round can use: a multiple of node_unit, at most max_nodes.
int UsableNodes(const JobRules& policy, int nodes);

struct Seat {
  NodeId node;
  Assignment assignment;
};
// Plans the next round from the waiting nodes. Nodes of the last round take precedence, then earlier
// arrivals; nodes beyond UsableNodes get no seat. Excluded nodes are used only if the others are too few
// for min_nodes. Returns the seats in order of group rank.
//   REQUIRES: all members wait, and a round of at least one node is possible.
std::vector<Seat> PlanRound(const JobRules& policy, const Membership& membership, Round round,
                            int restart_count);

}  // namespace ddprun
