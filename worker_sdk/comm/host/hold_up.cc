#include "worker_sdk/comm/host/hold_up.h"

#include <poll.h>

#include <chrono>

#include "base/time.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that runs answers within this time even on a busy machine.
constexpr Duration kAnswerTimeout = milliseconds(200);
// How often the answers are read, in milliseconds.
constexpr int kPollMs = 2;

// The ranks that have not answered yet, as RanksThatDoNotAnswer returns them.
std::vector<int> Missing(const Topology& topology, int node, int local_rank, const Segment& segment) {
  std::vector<int> missing;
  const RankRange own = topology.nodes[node];
  for (int g = 0; g < topology.num_nodes(); ++g) {
    const RankRange ranks = topology.nodes[g];
    for (int r = ranks.lo; r < ranks.hi; ++r) {
      const int name = topology.WorldRank(r);
      const bool is_hub = r == ranks.lo;
      if (is_hub && segment.HasLeft(name)) break;  // the others cannot be asked
      const bool answered = g == node ? r - own.lo == local_rank || segment.HasLocalAnswer(r - own.lo)
                                      : segment.HasRemoteAnswer(name);
      if (answered || segment.HasLeft(name)) continue;
      if (is_hub && g == node) return {name};
      missing.push_back(name);
      if (is_hub) break;
    }
  }
  return missing;
}

}  // namespace

std::vector<int> RanksThatDoNotAnswer(const Topology& topology, int node, int local_rank,
                                      const Segment& segment, Monitor* monitor) {
  if (segment.HasLeft(topology.WorldRank(topology.nodes[node].lo))) return {};
  monitor->Ask();
  const TimePoint deadline = Clock::now() + kAnswerTimeout;
  while (true) {
    if (!segment.DeadStatus().ok()) return {};
    std::vector<int> missing = Missing(topology, node, local_rank, segment);
    if (missing.empty() || Clock::now() >= deadline) return missing;
    poll(nullptr, 0, kPollMs);
  }
}

std::vector<int> RanksThatHoldUp(const Topology& topology, int node, int local_rank, const Segment& segment,
                                 Monitor* monitor) {
  std::vector<int> who = RanksThatDoNotAnswer(topology, node, local_rank, segment, monitor);
  if (!who.empty() || !segment.DeadStatus().ok()) return who;
  const Segment::HoldUp local = segment.WhoHoldsUp();
  for (const int r : local.local_ranks) who.push_back(topology.WorldRank(topology.nodes[node].lo + r));
  for (int g = 0; g < topology.num_nodes(); ++g) {
    const RankRange ranks = topology.nodes[g];
    for (int r = ranks.lo; g != node && r < ranks.hi; ++r) {
      if (segment.IsRemoteBusy(topology.WorldRank(r))) who.push_back(topology.WorldRank(r));
    }
  }
  return who.empty() ? local.peers : who;
}

}  // namespace ddprun
