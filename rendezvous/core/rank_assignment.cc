#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

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

}  // namespace ddprun
