#include "worker_sdk/comm/host/split.h"

#include <algorithm>

#include "base/check.h"

namespace ddprun {

SplitGroup GroupOf(int rank, std::span<const SplitChoice> choices, const Topology& parent) {
  DDPRUN_CHECK(choices[rank].color >= 0, "the rank is in no group");
  SplitGroup group;
  for (int r = 0; r < static_cast<int>(choices.size()); ++r) {
    if (choices[r].color == choices[rank].color) group.members.push_back(r);
  }
  std::ranges::stable_sort(group.members, {}, [&](int r) { return choices[r].key; });
  const auto node_of = [&](int r) {
    int node = 0;
    while (parent.nodes[node].hi <= r) ++node;
    return node;
  };
  for (int r = 0; r < static_cast<int>(group.members.size()); ++r) {
    const bool same_node = r > 0 && node_of(group.members[r]) == node_of(group.members[r - 1]);
    if (!same_node) group.nodes.push_back({r, r});
    group.nodes.back().hi = r + 1;
    if (group.members[r] != rank) continue;
    group.rank = r;
    group.node = static_cast<int>(group.nodes.size()) - 1;
  }
  return group;
}

}  // namespace ddprun
