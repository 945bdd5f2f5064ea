#include "worker_sdk/comm/host/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <new>
#include <string_view>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr uint64_t kMagic = 0x31544e454d474553;  // "SEGMENT1"
constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr uint64_t kNoneLeft = UINT64_MAX;

// Polls of a gate before a rank sleeps. They take about 10 microseconds, the time that a running peer needs
// to arrive. Sleeping and waking takes as long.
constexpr int kSpins = 400;

void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when the word changes, at `deadline`, or at any time in between: the caller rechecks in any case.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, TimePoint deadline) {
  const auto whole = std::chrono::floor<seconds>(deadline.time_since_epoch());
  const timespec until = {.tv_sec = std::max<time_t>(whole.count(), 0),
                          .tv_nsec = (deadline.time_since_epoch() - whole).count()};
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline == TimePoint::max() ? nullptr : &until,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Status ErrnoError(std::string_view what) { return ErrnoToStatus(errno, what); }

}  // namespace

// One gate of one slot.
struct Segment::GateState {
  alignas(kCacheLine) std::atomic<uint64_t> arrivals{0};  // total over the chunks of this slot so far
  alignas(kCacheLine) std::atomic<uint64_t> open{0};      // the gate is open for chunks below this
  std::atomic<uint32_t> event{0};                         // futex: changes when sleepers are to be woken
  std::atomic<uint32_t> sleepers{0};  // may include ranks killed while asleep, which costs a needless wake
};

struct Segment::RankState {
  std::atomic<uint32_t> joined{0};  // 1 once `cpus` is set
  cpu_set_t cpus = {};              // all zero: unknown
  alignas(kCacheLine) Call calls[kNumSlots];
  // 1 + (chunk * 4 + gate) while asleep at that gate, otherwise 0.
  alignas(kCacheLine) std::atomic<uint64_t> awaited_gate{0};
  std::atomic<int32_t> awaited_peer{-1};
  // This rank's record; valid if Header::dead_by is this rank.
  alignas(kCacheLine) EndRecord end;
};

struct Segment::Header {
  uint64_t magic = kMagic;
  int64_t round = 0;
  int32_t num_ranks = 0;
  int32_t num_lanes = 0;
  uint64_t chunk_bytes = 0;
  alignas(kCacheLine) std::atomic<int32_t> dead_by{-1};  // local rank whose record is valid
  std::atomic<uint64_t> left{UINT64_MAX};  // num_chunks << kRankBits | rank, of the first leaver
  GateState gates[kNumGates][kNumSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

namespace {
// Header::left has the number of chunks in the upper bits and the rank in the lower bits, so that the first
// leaver has the smallest value.
constexpr int kRankBits = 24;
uint64_t ChunksOf(uint64_t left) { return left >> kRankBits; }
int RankOf(uint64_t left) { return static_cast<int>(left & ((1 << kRankBits) - 1)); }

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }
}  // namespace

size_t Segment::SizeOf(const SegmentLayout& layout) {
  const size_t control = RoundUp(sizeof(Header) + layout.num_ranks * sizeof(RankState), kPage);
  return control + kNumSlots * (layout.num_ranks + 1) * layout.chunk_bytes;
}

Segment::Segment(UniqueFd fd, const SegmentLayout& layout, char* base, size_t size)
    : fd_(std::move(fd)), layout_(layout), base_(base), size_(size) {}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      layout_(other.layout_),
      base_(std::exchange(other.base_, nullptr)),
      size_(other.size_),
      spins_(other.spins_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(layout_, other.layout_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(spins_, other.spins_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, size_);
}

StatusOr<Segment> Segment::Create(const SegmentLayout& layout) {
  const size_t size = SizeOf(layout);
  UniqueFd fd(memfd_create("ddprun-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoError("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return ErrnoError(StrCat("allocating a segment of ", size, " bytes"));
  }
  // Sealed, so that no process can shrink the memfd while others have it mapped.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError("sealing the segment");
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoError("mapping the segment");
  Segment segment(std::move(fd), layout, static_cast<char*>(base), size);
  auto* header = new (base) Header;
  header->round = layout.round;
  header->num_ranks = layout.num_ranks;
  header->num_lanes = layout.num_lanes;
  header->chunk_bytes = layout.chunk_bytes;
  for (int r = 0; r < layout.num_ranks; ++r) new (&segment.rank_state(r)) RankState;
  return segment;
}

StatusOr<Segment> Segment::Map(UniqueFd fd, const SegmentLayout& layout) {
  const size_t size = SizeOf(layout);
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoError("fstat of the segment");
  if (static_cast<size_t>(st.st_size) != size) {
    return InvalidArgumentError(
        StrCat("the node's segment has ", st.st_size, " bytes, this rank expects ", size));
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoError("mapping the segment");
  Segment segment(std::move(fd), layout, static_cast<char*>(base), size);
  const Header& header = segment.header();
  if (header.magic == kMagic && header.round != layout.round) {
    return AbortedError(
        StrCat("the node's segment belongs to round ", header.round, ", this rank to round ", layout.round));
  }
  if (header.magic != kMagic || header.num_ranks != layout.num_ranks ||
      header.num_lanes != layout.num_lanes || header.chunk_bytes != layout.chunk_bytes) {
    return InvalidArgumentError("the ranks of this node were given different options");
  }
  return segment;
}

Segment::Header& Segment::header() const { return *std::launder(reinterpret_cast<Header*>(base_)); }

Segment::RankState& Segment::rank_state(int local_rank) const {
  return *std::launder(reinterpret_cast<RankState*>(base_ + sizeof(Header) + local_rank * sizeof(RankState)));
}

char* Segment::input(uint64_t chunk, int local_rank) const {
  const size_t area = (chunk % kNumSlots) * (layout_.num_ranks + 1) + local_rank;
  return base_ + size_ - kNumSlots * (layout_.num_ranks + 1) * layout_.chunk_bytes +
         area * layout_.chunk_bytes;
}

char* Segment::result(uint64_t chunk) const { return input(chunk, layout_.num_ranks); }

Call& Segment::call(uint64_t chunk, int local_rank) const {
  return rank_state(local_rank).calls[chunk % kNumSlots];
}

Segment::GateState& Segment::gate_state(Gate gate, uint64_t chunk) const {
  return header().gates[static_cast<int>(gate)][chunk % kNumSlots];
}

void Segment::Join(int local_rank) {
  RankState& state = rank_state(local_rank);
  CPU_ZERO(&state.cpus);
  if (sched_getaffinity(0, sizeof(state.cpus), &state.cpus) != 0) CPU_ZERO(&state.cpus);
  state.joined.store(1, std::memory_order_release);
}

// Spinning is useful only if all ranks can run at the same time: the union of their processor sets must have
// at least one processor per rank. This may hold even if each rank is bound to a single processor.
int Segment::Spins() {
  if (spins_) return *spins_;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int r = 0; r < layout_.num_ranks; ++r) {
    if (rank_state(r).joined.load(std::memory_order_acquire) == 0) return 0;
    CPU_OR(&all, &all, &rank_state(r).cpus);
  }
  spins_ = layout_.num_ranks <= CPU_COUNT(&all) ? kSpins : 0;
  return *spins_;
}

void Segment::Arrive(Gate gate, uint64_t chunk) {
  const uint32_t parties = gate == Gate::kCombined ? layout_.num_lanes : layout_.num_ranks;
  GateState& state = gate_state(gate, chunk);
  // No rank arrives with the slot's next chunk before the gate has opened for this chunk. If the number of
  // arrivals is a multiple of `parties`, all parties have therefore arrived.
  if ((state.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1) % parties != 0) return;
  // The store and the load are sequentially consistent, and so are the sleeper's: either this rank finds the sleeper, or
  // the sleeper finds the gate open. A sleeper that was found is woken, or reads the new value of `event`.
  state.open.store(chunk + 1);
  if (state.sleepers.load() == 0) return;
  state.event.fetch_add(1);
  FutexWakeAll(&state.event);
}

bool Segment::IsOpen(Gate gate, uint64_t chunk) const { return gate_state(gate, chunk).open.load() > chunk; }

bool Segment::AwaitGate(Gate gate, uint64_t chunk, int local_rank, Patience& patience) {
  GateState& state = gate_state(gate, chunk);
  auto open = [&] { return IsOpen(gate, chunk); };
  if (open()) return true;
  for (int i = 0, spins = Spins(); i < spins; ++i) {
    if (open()) return true;
    CpuRelax();
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
  const uint64_t left = num_chunks << kRankBits | static_cast<uint64_t>(rank);
  uint64_t first = header().left.load();
  while (left < first && !header().left.compare_exchange_weak(first, left)) {
  }
  WakeAll();
}

Status Segment::DeadStatus() const {
  const int32_t by = header().dead_by.load(std::memory_order_acquire);
  if (by < 0) return OkStatus();
  DDPRUN_CHECK(by < layout_.num_ranks, "dead_by is not a rank of the node");
  return rank_state(by).end.status();
}

Status Segment::EndOf(uint64_t chunk) const {
  if (Status dead = DeadStatus(); !dead.ok()) return dead;
  const uint64_t left = header().left.load();
  if (ChunksOf(left) > chunk) return OkStatus();
  return UnavailableError(StrCat("rank ", RankOf(left), " of round ", layout_.round, " has left"));
}

std::vector<EndRecord> Segment::Ends() const {
  std::vector<EndRecord> ends;
  if (const uint64_t left = header().left.load(); left != kNoneLeft) {
    ends.push_back(LeftRecord(layout_.round, RankOf(left), ChunksOf(left)));
  }
  if (const int32_t by = header().dead_by.load(std::memory_order_acquire); by >= 0) {
    ends.push_back(rank_state(by).end);
  }
  return ends;
}

void Segment::SetAwaitedPeer(int local_rank, int rank) {
  rank_state(local_rank).awaited_peer.store(rank, std::memory_order_relaxed);
}

Segment::HoldUp Segment::WhoHoldsUp() const {
  HoldUp who;
  for (int r = 0; r < layout_.num_ranks; ++r) {
    if (const int peer = rank_state(r).awaited_peer.load(); peer >= 0) {
      who.peers.push_back(peer);
      continue;
    }
    // A rank that sleeps at a closed gate is waiting. In any other state, the other ranks wait for it.
    const uint64_t awaited = rank_state(r).awaited_gate.load();
    const uint64_t chunk = (awaited - 1) / 4;
    const bool waits =
        awaited != 0 && gate_state(static_cast<Gate>((awaited - 1) % 4), chunk).open.load() <= chunk;
    if (!waits) who.local_ranks.push_back(r);
  }
  return who;
}

}  // namespace ddprun
