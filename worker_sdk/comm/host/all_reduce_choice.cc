#include "worker_sdk/comm/host/all_reduce_choice.h"

#include <algorithm>
#include <string_view>

#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {
namespace {

constexpr size_t kCacheLine = 64;

// Above this size, measurements showed equal times for both mesh algorithms on two nodes, and longer times
// for the one-shot on more nodes.
constexpr size_t kMaxOneShotBytes = 64 << 10;
// Maximum number of bytes by which a node's traffic may be larger with the one-shot than with the two-shot.
// Sending 32 KiB takes 26 us at 10 Gbit/s, which is about the latency of the exchange that the one-shot
// saves. Up to this limit, the one-shot was at least as fast in every measured topology.
constexpr size_t kMaxExtraBytes = 32 << 10;

// Traffic of the busiest node for each algorithm, in bytes. A node's traffic is the number of bytes that it
// sends or the number that it receives, whichever is larger.
struct Traffic {
  size_t one_shot = 0;
  size_t two_shot = 0;
};

Traffic TrafficOf(size_t bytes, const Topology& topology) {
  const RankRange world{0, topology.world_size()};
  const size_t others = topology.num_nodes() - 1;
  size_t all_sums = 0;
  for (const RankRange& node : topology.nodes) all_sums += NumSubtreesWithin(world, node);
  Traffic traffic;
  for (const RankRange& node : topology.nodes) {
    const size_t sums = NumSubtreesWithin(world, node), others_sums = all_sums - sums;
    traffic.one_shot = std::max({traffic.one_shot, others * sums * bytes, others_sums * bytes});
    traffic.two_shot = std::max({traffic.two_shot, others * (sums + 1) * bytes / topology.num_nodes(),
                                 (others_sums + others) * bytes / topology.num_nodes()});
  }
  return traffic;
}

// Returns the number of non-empty pieces of the largest slice. This is also the number of nodes that reduce a
// piece in the two-shot.
size_t NumPieces(size_t bytes, const Topology& topology) {
  const size_t slice = CutSlice(bytes, kCacheLine, topology.num_lanes(), 0).size();
  return std::min<size_t>(topology.num_nodes(), (slice + kCacheLine - 1) / kCacheLine);
}

}  // namespace

std::string_view NameOf(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kSharedMemory:
      return "shared-memory";
    case AllReduceAlgorithm::kMeshOneShot:
      return "mesh-one-shot";
    case AllReduceAlgorithm::kMeshTwoShot:
      return "mesh-two-shot";
  }
  return "unknown";
}

bool FitsTopology(AllReduceAlgorithm algorithm, const Topology& topology) {
  return (algorithm == AllReduceAlgorithm::kSharedMemory) == (topology.num_nodes() == 1);
}

AllReduceAlgorithm ChooseAllReduce(size_t bytes, const Topology& topology) {
  if (topology.num_nodes() == 1) return AllReduceAlgorithm::kSharedMemory;
  if (bytes > kMaxOneShotBytes) return AllReduceAlgorithm::kMeshTwoShot;
  // With p non-empty pieces and n nodes, the two-shot needs 2 p (n - 1) messages in total, and the one-shot
  // needs n (n - 1) messages.
  if (2 * NumPieces(bytes, topology) < static_cast<size_t>(topology.num_nodes())) {
    return AllReduceAlgorithm::kMeshTwoShot;
  }
  const Traffic traffic = TrafficOf(bytes, topology);
  return traffic.one_shot <= traffic.two_shot + kMaxExtraBytes ? AllReduceAlgorithm::kMeshOneShot
                                                               : AllReduceAlgorithm::kMeshTwoShot;
}

}  // namespace ddprun
