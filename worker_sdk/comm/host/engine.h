// Moves chunks through the segment and across nodes: the data path of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"
#include "worker_sdk/comm/sum_tree.h"

namespace ddprun {

// A piece of an operation: num_bytes of every rank's input from `offset` on.
struct Chunk {
  Call call;
  const char* in = nullptr;  // of the whole operation
  char* out = nullptr;
  size_t offset = 0;
  size_t num_bytes = 0;
};

// Each chunk is filled, combined and drained, in this order; between these of one chunk those of its
// neighbours may run (segment.h has the rule), which is what hides waiting.
//   Errors:  the communicator's end, Segment::EndOf.
//   Threads: one caller.
class Engine {
 public:
  // All pointers outlive this. `mesh` is null with one node; a rank that is no lane does not use it.
  Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
         TcpMesh* mesh);

  // What a chunk of this kind of operation may hold of one rank's input.
  size_t MaxChunkBytes(OpKind kind) const;

  absl::Status Fill(uint64_t q, const Chunk& chunk);
  // `catch_up`: called before this sleeps for others. It drains all chunks before q, for one of them may be
  // complete while a peer never starts q.
  absl::Status Combine(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  absl::Status Drain(uint64_t q, const Chunk& chunk);

 private:
  absl::Status Await(Gate gate, uint64_t q);
  absl::Status AwaitOrCatchUp(Gate gate, uint64_t q, CatchUp catch_up);
  absl::Status CheckCalls(uint64_t q, const Call& call);
  // Each combines this lane's slice of the chunk: inputs of all ranks -> this lane's slice of the result.
  template <typename T>
  absl::Status AllReduceSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  template <typename T>
  absl::Status AllReduceAcrossNodes(uint64_t q, const Chunk& chunk, Slice slice, T divisor, CatchUp catch_up);
  absl::Status BroadcastSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  absl::Status AllGatherSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  // A message for lane `lane_` is left out when it is empty, but for chunks that carry nothing at all: there
  // it is the news that the other node has arrived.
  bool IsNeeded(const Chunk& chunk, size_t num_bytes) const {
    return num_bytes > 0 || (chunk.num_bytes == 0 && lane_ == 0);
  }
  RankRange local_ranks() const { return topology_.nodes[node_]; }
  bool is_lane() const { return lane_ < topology_.num_lanes(); }

  const Topology& topology_;
  const int node_;
  const int lane_;  // the local rank
  Segment* const segment_;
  Monitor* const monitor_;
  TcpMesh* const mesh_;

  std::vector<std::vector<RankRange>> subtrees_;  // by node: those its ranks form in the tree over the world
  std::vector<SumTree> own_trees_;     // by subtree of this node: from its ranks' inputs to its sum
  std::optional<SumTree> world_tree_;  // from all nodes' subtrees to the sum
  std::vector<char> own_sums_;         // [subtree][slice]
  std::vector<char> others_sums_;      // [node][subtree][this node's piece of the slice]
};

}  // namespace ddprun
