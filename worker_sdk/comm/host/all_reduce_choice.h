// Which all-reduce algorithm runs for which size and topology.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// All of them add in the order of the one tree over the ranks (sum_tree.h), so their results are bit-equal.
// S: bytes of a lane's slice; n: number of nodes; k: partial sums of a node, 1 for a node that is aligned with
// the tree.
enum class AllReduceAlgorithm : int {
  // One node: every lane adds its slice of all inputs in shared memory. No message.
  kSharedMemory,
  // Several nodes, latency-optimal: every node sends its partial sums of the slice to every other node, and
  // each adds all of them. One exchange; a node sends (n - 1) k S bytes and adds n k S.
  kMeshOneShot,
  // Several nodes, bandwidth-optimal: a reduce-scatter, then an all-gather, of one piece a node. Two exchanges,
  // the second after the first; a node sends (n - 1) / n (k + 1) S bytes and adds k S.
  kMeshTwoShot,
};
inline constexpr int kNumAllReduceAlgorithms = 3;

// "shared-memory", "mesh-one-shot", "mesh-two-shot".
absl::string_view NameOf(AllReduceAlgorithm algorithm);

// kSharedMemory fits one node, the others several.
bool FitsTopology(AllReduceAlgorithm algorithm, const Topology& topology);

// The algorithm for `bytes` of every rank's input that travel at a time: an operation, or a chunk of one that is
// cut. With several nodes the one-shot, where the two-shot sends neither fewer messages nor much fewer bytes:
// payloads of a few KiB on many nodes, up to 64 KiB on few. README.md has the measurements.
//   Pure: all ranks of a round have equal arguments, so they choose the same.
//   Result: fits `topology`.
//   Cost:  grows with the number of nodes; allocates nothing.
AllReduceAlgorithm ChooseAllReduce(size_t bytes, const Topology& topology);

}  // namespace ddprun
