// The memory that the ranks of one node share: slots for chunks, gates to meet at, and the reason of the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "os/unique_fd.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {

enum class OpKind : uint32_t { kAllReduce, kBroadcast, kAllGather };

// What all ranks must agree on before a chunk is combined.
struct Call {
  OpKind kind = OpKind::kAllReduce;
  uint32_t elem_bytes = 1;  // 4: float, 8: double, 1: bytes
  uint32_t mean = 0;        // all-reduce: 1 divides by the world
  int32_t root = 0;         // broadcast
  uint64_t index = 0;       // counts the communicator's operations
  uint64_t num_bytes = 0;   // of one rank's input
  bool operator==(const Call&) const = default;
};

// Chunks are numbered 0, 1, 2, ... through all operations; chunk q lives in slot q % 2. Each passes three
// gates, in this order; a gate opens for a chunk when all its parties have arrived with it:
//
//   kFilled    all local ranks: my input is in the slot         -> lanes may combine
//   kCombined  all lanes: my slice of the result is there       -> all may read it, inputs may be overwritten
//   kDrained   all local ranks: I have read the result          -> the result may be overwritten
//
// So filling chunk q waits for kCombined of q - 2, combining q for kFilled of q and kDrained of q - 2,
// draining q for kCombined of q.
enum class Gate { kFilled = 0, kCombined = 1, kDrained = 2 };
inline constexpr int kNumGates = 3;
inline constexpr int kNumSlots = 2;

struct SegmentLayout {
  int64_t round = 0;
  int num_ranks = 1;  // of the node
  int num_lanes = 1;
  size_t chunk_bytes = 0;  // a multiple of 64
};

// A memfd without a name: it is gone with the last process that has it.
//   Threads: Arrive, AwaitGate: one thread a rank. The rest: any.
class Segment {
 public:
  // Makes the memory; the other ranks map fd().
  static absl::StatusOr<Segment> Create(const SegmentLayout& layout);
  // Maps what Create made in another process.
  //   Errors: kAborted: a segment of another round; kInvalidArgument: of another layout.
  static absl::StatusOr<Segment> Map(UniqueFd fd, const SegmentLayout& layout);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  int fd() const { return fd_.get(); }
  const SegmentLayout& layout() const { return layout_; }

  // Tells the other ranks on which processors this one may run: that of the calling thread. Before a rank's
  // first AwaitGate.
  void Join(int local_rank);
  // How often a rank looks at a gate before it sleeps. 0: not all ranks have joined, or they cannot all run
  // at once.
  int SpinsForTest() { return Spins(); }

  char* input(uint64_t chunk, int local_rank) const;
  char* result(uint64_t chunk) const;
  Call& call(uint64_t chunk, int local_rank) const;  // written before kFilled, read after

  void Arrive(Gate gate, uint64_t chunk);
  bool IsOpen(Gate gate, uint64_t chunk) const;
  // Sleeps until the gate is open for `chunk`, and then returns true; false when it cannot open any more:
  // EndOf says why. The deadline is the caller's: who gives up calls SetDead.
  bool AwaitGate(Gate gate, uint64_t chunk, int local_rank);

  // Ends communication for all ranks of the node, and wakes them. False: it was over already.
  // `local_rank`: the caller's own; its place for the record is written once.
  bool SetDead(int local_rank, const EndRecord& why);
  // The half of SetDead that a rank has done when it is killed before it could wake anybody.
  bool MarkDeadForTest(int local_rank, const EndRecord& why) { return MarkDead(local_rank, why); }
  // No chunk from num_chunks on will come to an end, because `rank` has left.
  void SetLeft(int rank, uint64_t num_chunks);
  // Why chunk `chunk` cannot be completed; OK when it still may.
  absl::Status EndOf(uint64_t chunk) const;
  // The first SetDead's reason; OK while alive.
  absl::Status DeadStatus() const;
  // All that was told so far, by any rank of the node.
  std::vector<EndRecord> Ends() const;

  // For the message when a deadline passes: which peer of another node this lane waits for (-1: none).
  void SetAwaitedPeer(int local_rank, int rank);
  // Who holds up the node: local ranks that wait for nobody, and the peers of other nodes that lanes wait
  // for.
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
  std::optional<int> spins_;  // looks at a gate before sleeping; none: not all ranks have joined yet
};

}  // namespace ddprun
