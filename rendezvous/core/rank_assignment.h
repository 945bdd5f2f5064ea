// Who gets which rank in a round: a pure function of the members.
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

// The next round, made of the nodes that wait: a pure function of the members.

// How many of `nodes` a round can have: a multiple of node_unit, at most max_nodes.
int UsableNodes(const JobRules& policy, int nodes);

struct Seat {
  NodeId node;
  Assignment assignment;
};
// By group rank. Nodes that were in the last round are chosen first, then by arrival; those beyond what a
// round can have get no seat.
//   REQUIRES: all members wait, at least one can be used.
std::vector<Seat> PlanRound(const JobRules& policy, const Membership& membership, Round round,
                            int restart_count);

}  // namespace ddprun
