// The memory that the ranks of one node share: slots for chunks, gates for synchronization, and records of
// why communication ended. The file has the rings between pairs of ranks behind the segment (pair_ring.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/bell.h"
#include "worker_sdk/comm/host/patience.h"
#include "worker_sdk/comm/host/place.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {

using internal::Call;
using internal::OpKind;

// Chunks are numbered 0, 1, 2, ... across all operations; chunk q uses slot q % n, where n is the number of slots. Each
// chunk passes three gates, in this order. A gate opens for a chunk when all parties of the gate have arrived with that
// chunk.
//
//              parties          a party arrives when its        an open gate means
//   kFilled    all local ranks  input is in the slot            lanes may combine
//   kCombined  all lanes        slice of the result is written  result may be read, inputs may be overwritten
//   kDrained   all local ranks  copy of the result is made      result may be overwritten
//
// Before a step on chunk q, a rank waits for these gates:
//
//   fill     kCombined of q - n
//   combine  kFilled of q, kDrained of q - n
//   drain    kCombined of q
enum class Gate { kFilled = 0, kCombined = 1, kDrained = 2 };
inline constexpr int kNumGates = 3;
inline constexpr int kMaxSlots = 4;

struct SegmentLayout {
  int64_t round = 0;
  int num_ranks = 1;  // ranks of the node
  int num_lanes = 1;
  int num_slots = 2;       // at most kMaxSlots; more slots hide more latency and jitter
  size_t chunk_bytes = 0;  // a multiple of 64
  int world_size = 0;      // ranks of the world; HasLeft does not know ranks beyond it
};

// An unnamed memfd, which the kernel frees when the last process that holds it exits.
//   Threads: Arrive, IsOpen, AwaitGate: one thread per rank. All others: any.
class Segment {
 public:
  // Creates the memory; the other ranks map fd().
  //   Errors: kResourceExhausted: the limit for the size of files (ulimit -f) is too low.
  static StatusOr<Segment> Create(const SegmentLayout& layout);
  // Maps memory created by another process.
  //   Errors: kAborted: the memory belongs to another round; kInvalidArgument: it has another layout.
  static StatusOr<Segment> Map(UniqueFd fd, const SegmentLayout& layout);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // The bytes of shared memory that a segment uses.
  static size_t SizeOf(const SegmentLayout& layout);

  int fd() const { return fd_.get(); }
  // Gives up the memory. From then on, only layout() may be called.
  void Unmap();
  // Where the rings begin in the file.
  size_t rings_offset() const { return size_; }
  // The bytes of the memfd from `begin` to `end` - 1 belong neither to the segment nor to the rings. They have no memory
  // until they are written. `begin` is a multiple of the page size.
  struct Unused {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Unused unused() const;
  const SegmentLayout& layout() const { return layout_; }

  // Publishes the processors on which the calling thread may run. Must be called before the rank's first
  // AwaitGate.
  void Join(int local_rank);
  // Number of times that a rank polls a gate before it sleeps. 0 if not all ranks have joined, or if there
  // are fewer processors than ranks.
  int SpinsForTest() { return Spins(); }
  // True if all ranks of the node have joined and can run at the same time.
  bool RanksHaveOwnProcessors() const;

  char* input(uint64_t chunk, int local_rank) const;
  char* result(uint64_t chunk) const;
  // Room for an input of at most kInlineBytes, which other ranks read together with `call`.
  static constexpr size_t kInlineBytes = 24;
  char* inline_input(uint64_t chunk, int local_rank) const;
  // Written by the rank before it arrives at kFilled; read by lanes after kFilled has opened.
  Call& call(uint64_t chunk, int local_rank) const;

  // Like call, for all-reduces that are not one-shot.
  Places& places(uint64_t chunk, int local_rank) const;

  void Arrive(Gate gate, uint64_t chunk, int local_rank);
  // Like Arrive at kFilled, and says that this rank has arrived at kDrained with the chunks before `num_drained`. Ranks
  // that see kFilled open then know that, without reading further lines of this rank.
  void ArriveFilled(uint64_t chunk, int local_rank, uint64_t num_drained);
  bool IsOpen(Gate gate, uint64_t chunk);
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
  // Whether SetLeft was called for `rank`, on any rank of this node; and the error of operations that need it.
  bool HasLeft(int rank) const;
  Status LeftStatus(int rank) const;
  // The reason why `chunk` cannot complete; OK if it can.
  Status EndOf(uint64_t chunk) const;
  // The reason given to the first SetDead; OK if SetDead has not been called.
  Status DeadStatus() const;
  // The record given to the first SetDead, which must have been called.
  EndRecord FirstDead() const;
  // Returns the first kDead record and the kLeft record with the fewest chunks, each only if it exists.
  std::vector<EndRecord> Ends() const;

  // Wakes the rank while it waits for messages. SetDead and SetLeft ring all bells.
  Bell& bell(int local_rank) const;

  // What ranks answer after a deadline has passed (hold_up.h). Ranks of this node are given by their local rank, those of
  // other nodes by their rank in the world.
  void SetLocalAnswer(int local_rank);
  void SetRemoteAnswer(int rank, bool waits);
  bool HasLocalAnswer(int local_rank) const;
  bool HasRemoteAnswer(int rank) const;
  // Whether the rank has answered that it does not wait.
  bool IsRemoteBusy(int rank) const;
  // True if the local rank waits at a closed gate or for a peer.
  bool IsWaiting(int local_rank) const;

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
  struct SlotLine;
  struct RankState;
  Segment(UniqueFd fd, const SegmentLayout& layout, char* base, size_t size, uint64_t file_size);
  // One byte for each rank of the world: a combination of RankFlag.
  std::atomic<uint8_t>* flags_by_rank() const;
  bool HasFlag(int rank, uint8_t flag) const;
  Header& header() const;
  RankState& rank_state(int local_rank) const;
  GateState& gate_state(Gate gate, uint64_t chunk) const;
  SlotLine& slot_line(uint64_t chunk, int local_rank) const;
  // Written by the rank: the number of the last chunk of the slot with which it has arrived, plus one. For kFilled, the
  // upper bits have a lag.
  std::atomic<uint64_t>& arrival(Gate gate, uint64_t chunk, int local_rank) const;
  void SetArrival(Gate gate, uint64_t chunk, int local_rank, uint64_t word);
  bool AllHaveArrived(Gate gate, uint64_t chunk) const;
  // Updates num_drained_ from the words with which all ranks have arrived at kFilled.
  void NoteDrained(uint64_t chunk);
  bool MarkDead(int local_rank, const EndRecord& why);
  void WakeAll();
  int Spins();

  UniqueFd fd_;
  SegmentLayout layout_;
  char* base_ = nullptr;
  size_t size_ = 0;
  uint64_t file_size_ = 0;
  // By gate and slot: the last chunk for which the gate is known to be open, plus one.
  std::array<std::array<uint64_t, kMaxSlots>, kNumGates> known_ = {};
  // All ranks are known to have arrived at kDrained, and all lanes at kCombined, with the chunks before this one.
  uint64_t num_drained_ = 0;
  std::optional<int> spins_;  // polls of a gate before sleeping; nullopt until all ranks have joined
};

}  // namespace ddprun
