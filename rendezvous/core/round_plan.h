// The next round, made of the nodes that wait: a pure function of the members.
#pragma once

#include <vector>

#include "base/assignment.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

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
