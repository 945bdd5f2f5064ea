#include "rendezvous/core/round_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun {

int UsableNodes(const JobRules& policy, int nodes) {
  return std::min(nodes, policy.max_nodes) / policy.node_unit * policy.node_unit;
}

std::vector<Seat> PlanRound(const JobRules& policy, const Membership& membership, Round round,
                            int restart_count) {
  DDPRUN_CHECK(membership.in_round() == 0, membership.in_round() << " members are in a round");
  std::vector<const Member*> chosen;
  for (const auto& [id, m] : membership.members()) {
    if (!m.excluded) chosen.push_back(&m);
  }
  // Better with a host that fails than not at all.
  if (UsableNodes(policy, static_cast<int>(chosen.size())) < policy.min_nodes) {
    chosen.clear();
    for (const auto& [id, m] : membership.members()) chosen.push_back(&m);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Member* a, const Member* b) {
    return std::pair(b->round, a->arrival) < std::pair(a->round, b->arrival);
  });
  const int usable = UsableNodes(policy, static_cast<int>(chosen.size()));
  DDPRUN_CHECK(usable > 0, "no round can be made of " << chosen.size() << " nodes");
  chosen.resize(usable);

  std::vector<RankCandidate> candidates;
  for (const Member* m : chosen) {
    candidates.push_back({m->rank, m->info.requested_rank, m->arrival, m->info.nproc, m->info.role});
  }
  const RankPlan plan = AssignRanks(candidates);
  std::vector<size_t> by_rank(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) by_rank[plan.spans[i].group_rank.value()] = i;
  const NodeInfo& master = chosen[by_rank[0]]->info;

  std::vector<Seat> seats;
  for (const size_t i : by_rank) {
    const RankSpan& span = plan.spans[i];
    seats.push_back({chosen[i]->info.id,
                     {.round = round,
                      .group_rank = span.group_rank,
                      .group_world_size = static_cast<int>(chosen.size()),
                      .first_rank = span.first_rank,
                      .world_size = plan.world_size,
                      .first_role_rank = span.first_role_rank,
                      .role_world_size = span.role_world_size,
                      .restart_count = restart_count,
                      .master_addr = master.addr,
                      .master_port = master.store_port}});
  }
  return seats;
}

}  // namespace ddprun
