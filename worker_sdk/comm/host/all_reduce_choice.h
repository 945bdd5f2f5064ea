// Selects the all-reduce algorithm for a size and a topology.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// All algorithms add in the order of the tree over the ranks (sum_tree.h), so their results are bit-equal.
// S: bytes in a lane's slice; n: number of nodes; k: number of partial sums of a node, 1 if the node is
// aligned with the tree.
enum class AllReduceAlgorithm : int {
  // One node: every lane adds its slice of all inputs in shared memory. No messages.
  kSharedMemory,
  // Several nodes, latency-optimal: every node sends its partial sums of the slice to every other node, and
  // every node adds all of them. One exchange; a node sends (n - 1) k S bytes and adds n k S.
  kMeshOneShot,
  // Several nodes, bandwidth-optimal: a reduce-scatter followed by an all-gather, with one piece per node.
  // Two consecutive exchanges; a node sends (n - 1) / n (k + 1) S bytes and adds k S.
  kMeshTwoShot,
};
inline constexpr int kNumAllReduceAlgorithms = 3;

// "shared-memory", "mesh-one-shot", "mesh-two-shot".
absl::string_view NameOf(AllReduceAlgorithm algorithm);

// kSharedMemory requires exactly one node, the other algorithms several.
bool FitsTopology(AllReduceAlgorithm algorithm, const Topology& topology);

// Selects the algorithm for a chunk with `bytes` bytes of every rank's input. For several nodes and at most
// 64 KiB, selects the one-shot unless the two-shot sends fewer messages or far fewer bytes. On many nodes,
// the one-shot is therefore selected only for payloads of a few KiB. README.md has the measurements.
//   Pure:   all ranks of a round pass equal arguments, so they choose the same algorithm.
//   Result: fits `topology`.
//   Cost:   grows with the number of nodes; allocates nothing.
AllReduceAlgorithm ChooseAllReduce(size_t bytes, const Topology& topology);

}  // namespace ddprun
