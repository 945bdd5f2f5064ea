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

// A pipeline of chunks. Each chunk passes these steps in this order, and each step is done for the chunks in order.
// Steps of several chunks overlap: between nodes, chunk q exchanges partial sums while chunk q - 1 exchanges results.
//
//   take      the caller adds the chunk
//   fill      the input is copied to the segment
//   start     a lane posts the first messages to other nodes
//   continue  a lane combines what has arrived, and posts further messages
//   combine   the lane's slice of the result is complete, and nothing more is to be sent
//   drain     the result is copied to the output
//
// segment.h lists the gates for which the steps wait. Await blocks on the earliest chunk only, so a chunk that all ranks
// have started completes even if a peer never starts the next one.
//   Threads: one caller.
class Engine {
 public:
  // `topology` and the objects behind all pointers must outlive the engine. `mesh` is null if there is only one node; a
  // rank that is not a lane does not use it. `patience` limits every wait. `regions`: memory that the node's ranks share.
  // `only`: if set, the algorithm for every all-reduce; otherwise ChooseAllReduce selects the algorithm.
  //   REQUIRES: `only` fits the topology.
  Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
         TcpMesh* mesh, Patience* patience, const Regions* regions,
         std::optional<AllReduceAlgorithm> only = std::nullopt);

  // Maximum size in bytes of one rank's input in a chunk, for operations of this kind.
  size_t MaxChunkBytes(OpKind kind) const;

  // Number of chunks that the engine holds at most, from Take until they are drained.
  static constexpr int kMaxChunks = 2 * kMaxSlots;

  // Adds the next chunk, and copies its input to the segment if there is room. Its memory must stay valid until it is drained.
  //   REQUIRES: fewer than kMaxChunks chunks are held.
  void Take(const Chunk& chunk);
  // Does what is possible without blocking. Returns true if a chunk has passed a step. Never fails; if communication has
  // ended, the chunks that cannot complete stop, and Await returns the error.
  bool Step();
  // Blocks until Step may continue.
  //   REQUIRES: at least one chunk is held, and Step has returned false.
  //   Errors:   Segment::EndOf the earliest chunk. All chunks before it are drained.
  Status Await();

  // Number of chunks that have passed each step so far.
  uint64_t num_taken() const { return num_taken_; }
  uint64_t num_filled() const { return num_filled_; }
  uint64_t num_drained() const { return num_drained_; }

 private:
  struct InFlight {
    Chunk chunk;
    int num_continued = 0;  // times that Continue was called
    bool is_reduced = false;
    // The lanes write the result to this rank's output. Not read from the segment, where the places of chunk q + n may
    // have replaced those of chunk q before this rank drains it.
    bool is_written_by_lanes = false;
  };

  InFlight& at(uint64_t q) { return chunks_[q % kMaxChunks]; }
  bool Fill();
  bool Start();
  bool Continue();
  bool Combine();
  bool Drain();
  void Post(uint64_t q, const Chunk& chunk);
  Status AwaitGate(Gate gate, uint64_t q);
  // Returns the local rank whose call of the chunk differs; nullopt if there is none.
  std::optional<int> DifferentCall(uint64_t q, const Call& call) const;
  Status CheckCalls(uint64_t q, const Call& call);
  // True if every rank computes its own output of the operation from the inputs, without a result in the segment.
  bool IsOneShot(const Call& call) const;
  // Where `local_rank` puts its input.
  char* InputSlot(uint64_t q, int local_rank, const Call& call) const;
  // Computes the output of a one-shot operation.
  void OneShot(uint64_t q, const Chunk& chunk);
  // The part of the chunk that does not pass through the segment, in bytes: this lane's slice, or nothing.
  Slice DirectBytes(const Chunk& chunk) const;
  // True if the operation's memory may be in regions, which the ranks then publish.
  bool UsesRegions(const Chunk& chunk) const { return Lane::SkipsSegment(chunk) && !IsOneShot(chunk.call); }
  // Copies this rank's part of the chunk's result to the output.
  void CopyOut(uint64_t q, const Chunk& chunk);
  AllReduce& AlgorithmFor(const Chunk& chunk) const;
  // These functions post the messages of this lane's slice, and write what this node contributes to the result.
  void PostBroadcast(uint64_t q, const Chunk& chunk);
  void PostAllGather(uint64_t q, const Chunk& chunk);
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

  std::array<InFlight, kMaxChunks> chunks_;  // chunk q is at index q % kMaxChunks
  uint64_t num_taken_ = 0;
  uint64_t num_filled_ = 0;
  uint64_t num_started_ = 0;   // if this rank is a lane
  uint64_t num_combined_ = 0;  // if this rank is a lane
  uint64_t num_drained_ = 0;
};

}  // namespace ddprun
