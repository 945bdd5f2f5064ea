// Moves chunks through the segment and between nodes: the data path of one rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/all_reduce.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/lane.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"
#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {

// Each chunk is filled, combined and drained, in this order. To hide latency, the caller may interleave these
// steps with the steps of adjacent chunks; segment.h lists what each step waits for. `q`: the chunk's number.
//   Errors:  those of Segment::EndOf.
//   Threads: one caller.
class Engine {
 public:
  // `topology` and the objects behind all pointers must outlive the engine. `mesh` is null if there is only
  // one node; a rank that is not a lane does not use it. `patience` limits every wait. `only`: if set, the algorithm for every all-reduce;
  // otherwise ChooseAllReduce selects the algorithm.
  //   REQUIRES: `only` fits the topology.
  Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
         TcpMesh* mesh, Patience* patience, std::optional<AllReduceAlgorithm> only = std::nullopt);

  // Maximum size in bytes of one rank's input in a chunk, for operations of this kind.
  size_t MaxChunkBytes(OpKind kind) const;

  Status Fill(uint64_t q, const Chunk& chunk);
  // `catch_up`: must drain all chunks before q. Combine calls it before it blocks on other ranks, because
  // earlier chunks may be complete even if a peer never starts q.
  Status Combine(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  Status Drain(uint64_t q, const Chunk& chunk);

 private:
  Status Await(Gate gate, uint64_t q);
  Status AwaitOrCatchUp(Gate gate, uint64_t q, CatchUp catch_up);
  Status CheckCalls(uint64_t q, const Call& call);
  // True if every rank computes its own output of the operation from the inputs, without a result in the segment.
  bool IsOneShot(const Call& call) const;
  // Computes the output of a one-shot operation.
  void OneShot(uint64_t q, const Chunk& chunk);
  // True if this lane's slice of the chunk is read from the caller's input instead of the segment, and copied to the
  // caller's output as soon as it is combined.
  bool SkipsSegment(const Call& call) const;
  // This lane's slice of the chunk, in bytes.
  Slice OwnBytes(const Chunk& chunk) const;
  // Copies this rank's part of the chunk's result to the output.
  void CopyOut(const char* result, const Chunk& chunk);
  // Each of these functions combines the inputs of all ranks into this lane's slice of the result.
  Status AllReduceSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  Status BroadcastSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  Status AllGatherSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up);
  RankRange local_ranks() const { return lane_.local_ranks(); }

  const Topology& topology_;
  const Lane lane_;
  Segment* const segment_;
  Monitor* const monitor_;
  TcpMesh* const mesh_;
  Patience* const patience_;

  const std::optional<AllReduceAlgorithm> only_;
  // Indexed by AllReduceAlgorithm; null for algorithms that do not fit the topology.
  std::array<std::unique_ptr<AllReduce>, kNumAllReduceAlgorithms> all_reduces_;
  const ReductionTree one_shot_tree_;         // one leaf per rank of the node
  std::vector<const char*> one_shot_inputs_;  // of OneShot; kept, so that it does not allocate
};

}  // namespace ddprun
