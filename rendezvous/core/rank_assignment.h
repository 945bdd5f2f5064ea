// Assigns the ranks of a round. Pure: the result depends only on the members.
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
  std::optional<GroupRank> previous = {};  // rank in the last round of the node; nullopt for a newcomer
  std::optional<int> requested = {};       // --node-rank
  uint64_t arrival = 0;                    // position in the order of joining; unique
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

// Assigns consecutive ranks. If every node has a requested rank, the nodes are ordered by requested rank.
// Otherwise the survivors are first, in their previous order. The newcomers with a requested rank follow,
// ordered by that rank. The other newcomers are last, ordered by arrival.
RankPlan AssignRanks(const std::vector<RankCandidate>& candidates);

// Returns how many of `nodes` nodes a round can use: the largest multiple of node_unit that exceeds neither
// `nodes` nor max_nodes.
int UsableNodes(const JobRules& policy, int nodes);

// The place of a node in a round.
struct Seat {
  NodeId node;
  Assignment assignment;
};
// Plans the next round from the waiting nodes. Nodes whose last round is more recent have precedence. Among
// nodes with the same last round, those that arrived earlier have precedence. Nodes beyond UsableNodes get no
// seat. Excluded nodes are used only if the other nodes are too few for a round of min_nodes. Returns the
// seats in order of group rank.
//   REQUIRES: all members are waiting, and a round of at least one node is possible.
std::vector<Seat> PlanRound(const JobRules& policy, const Membership& membership, Round round,
                            int restart_count);

}  // namespace ddprun
