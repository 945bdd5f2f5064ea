// Selects the all-reduce algorithm for a size and a topology.
#pragma once

#include <cstddef>
#include <string_view>

#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// All algorithms add in the order of the tree over the ranks (reduction_tree.h), so their results are bit-equal.
// S: bytes in a lane's slice; n: number of nodes; k: number of partial sums of a node, which is 1 if the node
// is aligned with the tree.
enum class AllReduceAlgorithm : int {
  // For one node. Every lane adds its slice of all inputs in shared memory. Sends no messages.
  kSharedMemory,
  // For several nodes; minimizes latency. Every node sends its partial sums of the slice to every other node,
  // and adds the partial sums of all nodes. There is one exchange: a node sends (n - 1) k S bytes and adds
  // n k S bytes.
  kMeshOneShot,
  // For several nodes; minimizes traffic. A reduce-scatter is followed by an all-gather, with one piece of
  // the slice per node. There are two consecutive exchanges: a node sends (n - 1) / n (k + 1) S bytes and
  // adds k S bytes.
  kMeshTwoShot,
};
inline constexpr int kNumAllReduceAlgorithms = 3;

// Returns "shared-memory", "mesh-one-shot" or "mesh-two-shot".
std::string_view NameOf(AllReduceAlgorithm algorithm);

// Returns true if `algorithm` can run on `topology`. kSharedMemory requires exactly one node; the other
// algorithms require several nodes.
bool FitsTopology(AllReduceAlgorithm algorithm, const Topology& topology);

// Selects the algorithm for a chunk with `bytes` bytes of every rank's input. For several nodes and at most
// 64 KiB, selects the one-shot algorithm unless the two-shot algorithm sends fewer messages or far fewer
// bytes. On many nodes, the one-shot is therefore selected only for payloads of a few KiB. README.md has the
// measurements.
//   Pure:   all ranks of a round pass equal arguments, so they select the same algorithm.
//   Result: fits `topology`.
//   Cost:   grows with the number of nodes; allocates nothing.
AllReduceAlgorithm ChooseAllReduce(size_t bytes, const Topology& topology);

}  // namespace ddprun
