#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace ddprun {

RankPlan AssignRanks(const std::vector<RankCandidate>& candidates) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const bool all_requested = std::all_of(candidates.begin(), candidates.end(),
                                         [](const RankCandidate& c) { return c.requested.has_value(); });
  const auto place = [&](size_t i) {
    const RankCandidate& c = candidates[i];
    const int64_t requested = c.requested ? *c.requested : kLast;
    const int64_t previous = !all_requested && c.previous ? c.previous->value() : kLast;
    return std::tuple(previous, requested, c.arrival);
  };
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });

  RankPlan plan;
  plan.spans.resize(candidates.size());
  std::map<std::string, int> role_size;
  int64_t group_rank = 0;
  for (const size_t i : order) {
    int& role_rank = role_size[candidates[i].role];
    plan.spans[i] = {GroupRank(group_rank++), Rank(plan.world_size), role_rank, 0};
    plan.world_size += candidates[i].nproc;
    role_rank += candidates[i].nproc;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    plan.spans[i].role_world_size = role_size[candidates[i].role];
  }
  return plan;
}

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
  // If there are too few nodes without the excluded ones, all nodes are used.
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
