// The memory that the ranks of one node share: slots for chunks, gates for synchronization, and records of
// why communication ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/patience.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {

using internal::Call;
using internal::OpKind;

// Chunks are numbered 0, 1, 2, ... across all operations; chunk q uses slot q % 2. Each chunk passes three
// gates, in this order. A gate opens for a chunk when all parties of the gate have arrived with that chunk.
//
//              parties          a party arrives when its        an open gate means
//   kFilled    all local ranks  input is in the slot            lanes may combine
//   kCombined  all lanes        slice of the result is written  result may be read, inputs may be overwritten
//   kDrained   all local ranks  copy of the result is made      result may be overwritten
//
// Before a step on chunk q, a rank waits for these gates:
//
//   fill     kCombined of q - 2
//   combine  kFilled of q, kDrained of q - 2
//   drain    kCombined of q
enum class Gate { kFilled = 0, kCombined = 1, kDrained = 2 };
inline constexpr int kNumGates = 3;
inline constexpr int kNumSlots = 2;

struct SegmentLayout {
  int64_t round = 0;
  int num_ranks = 1;  // ranks of the node
  int num_lanes = 1;
  size_t chunk_bytes = 0;  // a multiple of 64
};

// An unnamed memfd, which the kernel frees when the last process that holds it exits.
//   Threads: Arrive, AwaitGate: one thread per rank. All others: any.
class Segment {
 public:
  // Creates the memory; the other ranks map fd().
  static StatusOr<Segment> Create(const SegmentLayout& layout);
  // Maps memory created by another process.
  //   Errors: kAborted: the memory belongs to another round; kInvalidArgument: it has another layout.
  static StatusOr<Segment> Map(UniqueFd fd, const SegmentLayout& layout);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  int fd() const { return fd_.get(); }
  const SegmentLayout& layout() const { return layout_; }

  // Publishes the processors on which the calling thread may run. Must be called before the rank's first
  // AwaitGate.
  void Join(int local_rank);
  // Number of times that a rank polls a gate before it sleeps. 0 if not all ranks have joined, or if there
  // are fewer processors than ranks.
  int SpinsForTest() { return Spins(); }

  char* input(uint64_t chunk, int local_rank) const;
  char* result(uint64_t chunk) const;
  // Written by the rank before it arrives at kFilled; read by lanes after kFilled has opened.
  Call& call(uint64_t chunk, int local_rank) const;

  void Arrive(Gate gate, uint64_t chunk);
  bool IsOpen(Gate gate, uint64_t chunk) const;
  // Blocks until the gate is open for `chunk` and returns true. Returns false if the gate can no longer open
  // for `chunk`; EndOf has the reason. If the deadline of `patience` passes, calls `passed`, while WhoHoldsUp
  // still counts this rank as waiting.
  bool AwaitGate(Gate gate, uint64_t chunk, int local_rank, Patience& patience);

  // Ends communication for all ranks of the node and wakes them. Returns false if communication had
  // already ended.
  //   local_rank: the caller's local rank; `why` is stored in that rank's record.
  bool SetDead(int local_rank, const EndRecord& why);
  // Like SetDead, but does not wake the other ranks, as if the caller were killed before it could do so.
  bool MarkDeadForTest(int local_rank, const EndRecord& why) { return MarkDead(local_rank, why); }
  // Records that `rank` has left: chunk num_chunks and all later chunks will not complete.
  void SetLeft(int rank, uint64_t num_chunks);
  // The reason why `chunk` cannot complete; OK if it can.
  Status EndOf(uint64_t chunk) const;
  // The reason given to the first SetDead; OK if SetDead has not been called.
  Status DeadStatus() const;
  // Returns the first kDead record and the kLeft record with the fewest chunks, each only if it exists.
  std::vector<EndRecord> Ends() const;

  // Sets the peer on another node for which this lane waits; -1 if it waits for no peer. If a deadline
  // passes, the error names that peer.
  void SetAwaitedPeer(int local_rank, int rank);
  // The ranks that delay this node: local ranks that are not waiting, and peers on other nodes for which
  // lanes wait.
  struct HoldUp {
    std::vector<int> local_ranks;
    std::vector<int> peers;
  };
  HoldUp WhoHoldsUp() const;

 private:
  struct Header;
  struct GateState;
  struct RankState;
  Segment(UniqueFd fd, const SegmentLayout& layout, char* base, size_t size);
  static size_t SizeOf(const SegmentLayout& layout);
  Header& header() const;
  RankState& rank_state(int local_rank) const;
  GateState& gate_state(Gate gate, uint64_t chunk) const;
  bool MarkDead(int local_rank, const EndRecord& why);
  void WakeAll();
  int Spins();

  UniqueFd fd_;
  SegmentLayout layout_;
  char* base_ = nullptr;
  size_t size_ = 0;
  std::optional<int> spins_;  // polls of a gate before sleeping; nullopt until all ranks have joined
};

}  // namespace ddprun
