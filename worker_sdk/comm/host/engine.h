// Moves chunks through the segment and between nodes: the data path of one rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "worker_sdk/comm/host/all_reduce.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/lane.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// Each chunk is filled, combined and drained, in this order. To hide latency, the caller may interleave these
// steps with those of neighbouring chunks; segment.h has the rule.
//   Errors:  those of Segment::EndOf.
//   Threads: one caller.
class Engine {
 public:
  // `topology` and all pointers must outlive this. `mesh` is null if there is only one node; a rank that is
  // not a lane does not use it. `only`: the algorithm for every all-reduce, instead of the one that
  // ChooseAllReduce selects. REQUIRES: `only` fits the topology.
  Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
         TcpMesh* mesh, std::optional<AllReduceAlgorithm> only = std::nullopt);

  // Maximum number of bytes of one rank's input in a chunk of an operation of this kind.
  size_t MaxChunkBytes(OpKind kind) const;

  absl::Status Fill(uint64_t q, const Chunk& chunk);
  // `catch_up`: called before Combine blocks on other ranks. Drains all chunks before q: they may be complete
  // even if a peer never starts q.
  absl::Status Combine(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  absl::Status Drain(uint64_t q, const Chunk& chunk);

 private:
  absl::Status Await(Gate gate, uint64_t q);
  absl::Status AwaitOrCatchUp(Gate gate, uint64_t q, CatchUp catch_up);
  absl::Status CheckCalls(uint64_t q, const Call& call);
  // Each of these combines the inputs of all ranks into this lane's slice of the result.
  absl::Status AllReduceSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  absl::Status BroadcastSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  absl::Status AllGatherSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  RankRange local_ranks() const { return lane_.local_ranks(); }

  const Topology& topology_;
  const Lane lane_;
  Segment* const segment_;
  Monitor* const monitor_;
  TcpMesh* const mesh_;

  const std::optional<AllReduceAlgorithm> only_;
  // By AllReduceAlgorithm; null for algorithms that do not fit the topology.
  std::array<std::unique_ptr<AllReduce>, kNumAllReduceAlgorithms> all_reduces_;
};

}  // namespace ddprun
