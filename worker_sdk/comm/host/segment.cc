#include "worker_sdk/comm/host/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <string_view>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/futex.h"
#include "worker_sdk/comm/host/pair_ring.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr uint64_t kMagic = 0x31544e454d474553;  // "SEGMENT1"
constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr uint64_t kNoneLeft = UINT64_MAX;

// Polls of a gate before a rank sleeps, if each rank has a processor of its own. They take about 50 microseconds: the time
// that a running peer needs to arrive, and more than sleeping and waking costs.
constexpr int kSpins = 2000;
// Otherwise, how often a rank lets others run before it sleeps.
constexpr int kYields = 100;

Status ErrnoError(std::string_view what) { return ErrnoToStatus(errno, what); }

}  // namespace

// The ranks that sleep at one gate of one slot.
struct Segment::GateState {
  alignas(kCacheLine) std::atomic<uint32_t> event{0};  // futex: changes when sleepers are to be woken
  std::atomic<uint32_t> sleepers{0};  // may include ranks killed while asleep, which costs a needless wake
};

// What a rank publishes when it fills a slot. One line, so that a small operation costs one transfer between caches.
struct alignas(kCacheLine) Segment::SlotLine {
  // The number of the chunk in the slot, plus one; written last. In the upper bits, by how many chunks the rank's last
  // drained one lags behind; kLagUnknown if that is not known.
  std::atomic<uint64_t> num_filled{0};
  Call call;
  char bytes[kInlineBytes] = {};
};

struct Segment::RankState {
  std::atomic<uint32_t> joined{0};    // 1 once `cpus` is set
  std::atomic<uint32_t> answered{0};  // SetLocalAnswer was called
  cpu_set_t cpus = {};                // all zero: unknown
  SlotLine slots[kMaxSlots];
  // By slot: the number of the last chunk with which the rank has arrived at kCombined or kDrained, plus one.
  alignas(kCacheLine) std::atomic<uint64_t> combined[kMaxSlots] = {};
  std::atomic<uint64_t> drained[kMaxSlots] = {};
  alignas(kCacheLine) Places places[kMaxSlots];
  // 1 + (chunk * 4 + gate) while asleep at that gate, otherwise 0.
  alignas(kCacheLine) std::atomic<uint64_t> awaited_gate{0};
  std::atomic<int32_t> awaited_peer{-1};
  alignas(kCacheLine) Bell bell;
  // This rank's record; valid if Header::dead_by is this rank.
  alignas(kCacheLine) EndRecord end;
};

struct Segment::Header {
  uint64_t magic = kMagic;
  int64_t round = 0;
  int32_t num_ranks = 0;
  int32_t num_lanes = 0;
  int32_t num_slots = 0;
  uint64_t chunk_bytes = 0;
  alignas(kCacheLine) std::atomic<int32_t> dead_by{-1};  // local rank whose record is valid
  std::atomic<uint64_t> left{UINT64_MAX};  // num_chunks << kRankBits | rank, of the first leaver
  GateState gates[kNumGates][kMaxSlots];
};
static_assert(sizeof(Call) + Segment::kInlineBytes + sizeof(uint64_t) == kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

namespace {
// Header::left has the number of chunks in the upper bits and the rank in the lower bits, so that the first
// leaver has the smallest value.
constexpr int kRankBits = 24;
uint64_t ChunksOf(uint64_t left) { return left >> kRankBits; }
int RankOf(uint64_t left) { return static_cast<int>(left & ((1 << kRankBits) - 1)); }

// SlotLine::num_filled has a lag in the upper bits and a number of chunks in the lower bits.
constexpr int kLagShift = 56;
constexpr uint64_t kLagUnknown = 255;
constexpr uint64_t kCountMask = (uint64_t{1} << kLagShift) - 1;

// What is known about a rank of the world.
enum RankFlag : uint8_t { kHasLeft = 1, kHasAnswered = 2, kIsBusy = 4 };

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The size of a memfd of at least `size` bytes: as large as possible, because pages without data cost nothing, and
// the size cannot be changed later. The kernel kills a process that exceeds its limit for the size of files.
StatusOr<uint64_t> FileSizeFor(size_t size) {
  constexpr uint64_t kMaxFileSize = uint64_t{1} << 42;
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return ErrnoError("getrlimit");
  const uint64_t file_size = std::min<uint64_t>(kMaxFileSize, limit.rlim_cur);
  if (file_size >= size) return file_size;
  return ResourceExhaustedError(StrCat("a segment of ", size,
                                       " bytes exceeds the limit for the size of files of ", file_size,
                                       " bytes: raise it (ulimit -f)"));
}
}  // namespace

size_t Segment::SizeOf(const SegmentLayout& layout) {
  // After the ranks' states, one byte for each rank of the world.
  const size_t control =
      RoundUp(sizeof(Header) + layout.num_ranks * sizeof(RankState) + layout.world_size, kPage);
  return RoundUp(control + layout.num_slots * (layout.num_ranks + 1) * layout.chunk_bytes, kPage);
}

Segment::Segment(UniqueFd fd, const SegmentLayout& layout, char* base, size_t size, uint64_t file_size)
    : fd_(std::move(fd)), layout_(layout), base_(base), size_(size), file_size_(file_size) {}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      layout_(other.layout_),
      base_(std::exchange(other.base_, nullptr)),
      size_(other.size_),
      file_size_(other.file_size_),
      known_(other.known_),
      num_drained_(other.num_drained_),
      spins_(other.spins_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(layout_, other.layout_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(file_size_, other.file_size_);
  std::swap(known_, other.known_);
  std::swap(num_drained_, other.num_drained_);
  std::swap(spins_, other.spins_);
  return *this;
}

Segment::~Segment() { Unmap(); }

void Segment::Unmap() {
  if (base_ != nullptr) munmap(base_, size_);
  base_ = nullptr;
  fd_.Reset();
}

StatusOr<Segment> Segment::Create(const SegmentLayout& layout) {
  DDPRUN_CHECK(layout.num_slots >= 2 && layout.num_slots <= kMaxSlots, "the number of slots");
  const size_t size = SizeOf(layout);
  UniqueFd fd(memfd_create("ddprun-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoError("memfd_create");
  DDPRUN_ASSIGN_OR_RETURN(const uint64_t file_size, FileSizeFor(size + PairRingsBytes(layout.num_ranks)));
  if (ftruncate(fd.get(), static_cast<off_t>(file_size)) != 0) {
    return ErrnoError(StrCat("a segment of ", file_size, " bytes"));
  }
  // Sealed, so that no process can shrink the memfd while others have it mapped.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError("sealing the segment");
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoError("mapping the segment");
  Segment segment(std::move(fd), layout, static_cast<char*>(base), size, file_size);
  auto* header = new (base) Header;
  header->round = layout.round;
  header->num_ranks = layout.num_ranks;
  header->num_lanes = layout.num_lanes;
  header->num_slots = layout.num_slots;
  header->chunk_bytes = layout.chunk_bytes;
  for (int r = 0; r < layout.num_ranks; ++r) new (&segment.rank_state(r)) RankState;
  return segment;
}

StatusOr<Segment> Segment::Map(UniqueFd fd, const SegmentLayout& layout) {
  const size_t size = SizeOf(layout);
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoError("fstat of the segment");
  if (static_cast<size_t>(st.st_size) < size + PairRingsBytes(layout.num_ranks)) {
    return InvalidArgumentError(
        StrCat("the node's segment has ", st.st_size, " bytes, this rank expects at least ", size));
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoError("mapping the segment");
  Segment segment(std::move(fd), layout, static_cast<char*>(base), size, st.st_size);
  const Header& header = segment.header();
  if (header.magic == kMagic && header.round != layout.round) {
    return AbortedError(
        StrCat("the node's segment belongs to round ", header.round, ", this rank to round ", layout.round));
  }
  if (header.magic != kMagic || header.num_ranks != layout.num_ranks ||
      header.num_lanes != layout.num_lanes || header.num_slots != layout.num_slots ||
      header.chunk_bytes != layout.chunk_bytes) {
    return InvalidArgumentError("the ranks of this node were given different options");
  }
  return segment;
}

Segment::Header& Segment::header() const { return *std::launder(reinterpret_cast<Header*>(base_)); }

Segment::RankState& Segment::rank_state(int local_rank) const {
  return *std::launder(reinterpret_cast<RankState*>(base_ + sizeof(Header) + local_rank * sizeof(RankState)));
}

Segment::Unused Segment::unused() const { return {size_ + PairRingsBytes(layout_.num_ranks), file_size_}; }

std::atomic<uint8_t>* Segment::flags_by_rank() const {
  return std::launder(reinterpret_cast<std::atomic<uint8_t>*>(base_ + sizeof(Header) +
                                                              layout_.num_ranks * sizeof(RankState)));
}

Bell& Segment::bell(int local_rank) const { return rank_state(local_rank).bell; }

char* Segment::input(uint64_t chunk, int local_rank) const {
  const size_t area = (chunk % layout_.num_slots) * (layout_.num_ranks + 1) + local_rank;
  return base_ + size_ - layout_.num_slots * (layout_.num_ranks + 1) * layout_.chunk_bytes +
         area * layout_.chunk_bytes;
}

char* Segment::inline_input(uint64_t chunk, int local_rank) const {
  return slot_line(chunk, local_rank).bytes;
}

Segment::SlotLine& Segment::slot_line(uint64_t chunk, int local_rank) const {
  return rank_state(local_rank).slots[chunk % layout_.num_slots];
}

char* Segment::result(uint64_t chunk) const { return input(chunk, layout_.num_ranks); }

Call& Segment::call(uint64_t chunk, int local_rank) const { return slot_line(chunk, local_rank).call; }

Places& Segment::places(uint64_t chunk, int local_rank) const {
  return rank_state(local_rank).places[chunk % layout_.num_slots];
}

Segment::GateState& Segment::gate_state(Gate gate, uint64_t chunk) const {
  return header().gates[static_cast<int>(gate)][chunk % layout_.num_slots];
}

void Segment::Join(int local_rank) {
  RankState& state = rank_state(local_rank);
  CPU_ZERO(&state.cpus);
  if (sched_getaffinity(0, sizeof(state.cpus), &state.cpus) != 0) CPU_ZERO(&state.cpus);
  state.joined.store(1, std::memory_order_release);
}

int Segment::Spins() {
  if (spins_) return *spins_;
  for (int r = 0; r < layout_.num_ranks; ++r) {
    if (rank_state(r).joined.load(std::memory_order_acquire) == 0) return 0;
  }
  spins_ = RanksHaveOwnProcessors() ? kSpins : 0;
  return *spins_;
}

// Spinning is useful only if all ranks can run at the same time: the union of their processor sets must have
// at least one processor per rank. This may hold even if each rank is bound to a single processor.
bool Segment::RanksHaveOwnProcessors() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int r = 0; r < layout_.num_ranks; ++r) {
    if (rank_state(r).joined.load(std::memory_order_acquire) == 0) return false;
    CPU_OR(&all, &all, &rank_state(r).cpus);
  }
  return layout_.num_ranks <= CPU_COUNT(&all);
}

std::atomic<uint64_t>& Segment::arrival(Gate gate, uint64_t chunk, int local_rank) const {
  RankState& rank = rank_state(local_rank);
  const int slot = static_cast<int>(chunk % layout_.num_slots);
  switch (gate) {
    case Gate::kFilled:
      return rank.slots[slot].num_filled;
    case Gate::kCombined:
      return rank.combined[slot];
    case Gate::kDrained:
      break;
  }
  return rank.drained[slot];
}

void Segment::Arrive(Gate gate, uint64_t chunk, int local_rank) {
  SetArrival(gate, chunk, local_rank,
             gate == Gate::kFilled ? kLagUnknown << kLagShift | (chunk + 1) : chunk + 1);
}

void Segment::ArriveFilled(uint64_t chunk, int local_rank, uint64_t num_drained) {
  const uint64_t lag = std::min(chunk - num_drained, kLagUnknown);
  SetArrival(Gate::kFilled, chunk, local_rank, lag << kLagShift | (chunk + 1));
}

void Segment::SetArrival(Gate gate, uint64_t chunk, int local_rank, uint64_t word) {
  // The store and the load are sequentially consistent, and so are the sleeper's: either this rank finds the sleeper, or
  // the sleeper finds this rank's arrival. Of the ranks that arrive, the last one finds the gate open. A sleeper that was
  // found is woken, or reads the new value of `event`.
  arrival(gate, chunk, local_rank).store(word);
  GateState& state = gate_state(gate, chunk);
  if (state.sleepers.load() == 0 || !AllHaveArrived(gate, chunk)) return;
  state.event.fetch_add(1);
  FutexWakeAll(&state.event);
}

bool Segment::AllHaveArrived(Gate gate, uint64_t chunk) const {
  const int parties = gate == Gate::kCombined ? layout_.num_lanes : layout_.num_ranks;
  for (int r = 0; r < parties; ++r) {
    if ((arrival(gate, chunk, r).load() & kCountMask) <= chunk) return false;
  }
  return true;
}

void Segment::NoteDrained(uint64_t chunk) {
  uint64_t least = UINT64_MAX;
  for (int r = 0; r < layout_.num_ranks; ++r) {
    const uint64_t word = arrival(Gate::kFilled, chunk, r).load(), lag = word >> kLagShift;
    least = std::min(least, lag == kLagUnknown ? 0 : (word & kCountMask) - 1 - lag);
  }
  num_drained_ = std::max(num_drained_, least);
}

bool Segment::IsOpen(Gate gate, uint64_t chunk) {
  // Without these two, a rank would read lines that its peers have just written.
  if (gate != Gate::kFilled && chunk < num_drained_) return true;
  uint64_t& known = known_[static_cast<int>(gate)][chunk % layout_.num_slots];
  if (known > chunk) return true;
  if (!AllHaveArrived(gate, chunk)) return false;
  known = chunk + 1;
  if (gate == Gate::kFilled) NoteDrained(chunk);
  return true;
}

bool Segment::AwaitGate(Gate gate, uint64_t chunk, int local_rank, Patience& patience) {
  GateState& state = gate_state(gate, chunk);
  auto open = [&] { return IsOpen(gate, chunk); };
  if (open()) return true;
  const int spins = Spins();
  for (int i = 0; i < spins; ++i) {
    if (open()) return true;
    CpuRelax();
  }
  // If ranks share processors, the one that is awaited may need this one's. Otherwise, sleeping is better: when the kernel
  // wakes a rank that shares a processor with another one by chance, it moves the rank to one that is idle.
  for (int i = 0; spins == 0 && i < kYields; ++i) {
    if (open()) return true;
    sched_yield();
  }
  auto& awaited = rank_state(local_rank).awaited_gate;
  awaited.store(1 + (chunk * 4 + static_cast<int>(gate)), std::memory_order_relaxed);
  state.sleepers.fetch_add(1);
  bool result;
  while (true) {
    const uint32_t event = state.event.load();
    if ((result = open()) || !EndOf(chunk).ok()) break;
    FutexWait(&state.event, event, patience.deadline);
    patience.Check();
  }
  state.sleepers.fetch_sub(1);
  awaited.store(0, std::memory_order_relaxed);
  return result;
}

void Segment::WakeAll() {
  for (auto& slots : header().gates) {
    for (GateState& state : slots) {
      state.event.fetch_add(1);
      FutexWakeAll(&state.event);
    }
  }
  for (int r = 0; r < layout_.num_ranks; ++r) bell(r).RingLoudly();
}

bool Segment::SetDead(int local_rank, const EndRecord& why) {
  const bool first = MarkDead(local_rank, why);
  WakeAll();  // even if not first: the first rank may have been killed before it woke the others
  return first;
}

bool Segment::MarkDead(int local_rank, const EndRecord& why) {
  if (header().dead_by.load(std::memory_order_acquire) >= 0) return false;
  rank_state(local_rank).end = why;
  int32_t none = -1;
  return header().dead_by.compare_exchange_strong(none, local_rank, std::memory_order_acq_rel);
}

void Segment::SetLeft(int rank, uint64_t num_chunks) {
  if (rank >= 0 && rank < layout_.world_size) flags_by_rank()[rank].fetch_or(kHasLeft);
  const uint64_t left = num_chunks << kRankBits | static_cast<uint64_t>(rank);
  uint64_t first = header().left.load();
  while (left < first && !header().left.compare_exchange_weak(first, left)) {
  }
  WakeAll();
}

bool Segment::HasFlag(int rank, uint8_t flag) const {
  return rank >= 0 && rank < layout_.world_size && (flags_by_rank()[rank].load() & flag) != 0;
}

bool Segment::HasLeft(int rank) const { return HasFlag(rank, kHasLeft); }

void Segment::SetLocalAnswer(int local_rank) { rank_state(local_rank).answered.store(1); }

bool Segment::HasLocalAnswer(int local_rank) const { return rank_state(local_rank).answered.load() != 0; }

void Segment::SetRemoteAnswer(int rank, bool waits) {
  if (rank < 0 || rank >= layout_.world_size) return;
  flags_by_rank()[rank].fetch_or(waits ? kHasAnswered : kHasAnswered | kIsBusy);
}

bool Segment::HasRemoteAnswer(int rank) const { return HasFlag(rank, kHasAnswered); }

bool Segment::IsRemoteBusy(int rank) const { return HasFlag(rank, kIsBusy); }

Status Segment::LeftStatus(int rank) const {
  return UnavailableError(StrCat("rank ", rank, " of round ", layout_.round, " has left"));
}

Status Segment::DeadStatus() const {
  const int32_t by = header().dead_by.load(std::memory_order_acquire);
  return by < 0 ? OkStatus() : FirstDead().status();
}

EndRecord Segment::FirstDead() const {
  const int32_t by = header().dead_by.load(std::memory_order_acquire);
  DDPRUN_CHECK(by >= 0 && by < layout_.num_ranks, "dead_by is not a rank of the node");
  return rank_state(by).end;
}

Status Segment::EndOf(uint64_t chunk) const {
  if (Status dead = DeadStatus(); !dead.ok()) return dead;
  const uint64_t left = header().left.load();
  if (ChunksOf(left) > chunk) return OkStatus();
  return LeftStatus(RankOf(left));
}

std::vector<EndRecord> Segment::Ends() const {
  std::vector<EndRecord> ends;
  if (const uint64_t left = header().left.load(); left != kNoneLeft) {
    ends.push_back(LeftRecord(layout_.round, RankOf(left), ChunksOf(left)));
  }
  if (header().dead_by.load(std::memory_order_acquire) >= 0) ends.push_back(FirstDead());
  return ends;
}

void Segment::SetAwaitedPeer(int local_rank, int rank) {
  rank_state(local_rank).awaited_peer.store(rank, std::memory_order_relaxed);
}

bool Segment::IsWaiting(int local_rank) const {
  const RankState& state = rank_state(local_rank);
  if (state.awaited_peer.load() >= 0) return true;
  // A rank that sleeps at a closed gate is waiting. In any other state, the other ranks wait for it.
  const uint64_t awaited = state.awaited_gate.load();
  const uint64_t chunk = (awaited - 1) / 4;
  return awaited != 0 && !AllHaveArrived(static_cast<Gate>((awaited - 1) % 4), chunk);
}

Segment::HoldUp Segment::WhoHoldsUp() const {
  HoldUp who;
  for (int r = 0; r < layout_.num_ranks; ++r) {
    if (const int peer = rank_state(r).awaited_peer.load(); peer >= 0) {
      who.peers.push_back(peer);
    } else if (!IsWaiting(r)) {
      who.local_ranks.push_back(r);
    }
  }
  return who;
}

}  // namespace ddprun
