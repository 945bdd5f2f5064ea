#include "worker_sdk/comm/host/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/mesh_all_reduce.h"
#include "worker_sdk/comm/host/shared_memory_all_reduce.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

template <typename T>
iovec Part(T* elems, size_t num_elems) {
  return {.iov_base = elems, .iov_len = num_elems * sizeof(T)};
}

std::unique_ptr<AllReduce> MakeAllReduce(AllReduceAlgorithm algorithm, const Lane& lane) {
  switch (algorithm) {
    case AllReduceAlgorithm::kSharedMemory:
      return std::make_unique<SharedMemoryAllReduce>(lane);
    case AllReduceAlgorithm::kMeshOneShot:
      return std::make_unique<MeshOneShot>(lane);
    case AllReduceAlgorithm::kMeshTwoShot:
      return std::make_unique<MeshTwoShot>(lane);
  }
  return nullptr;
}

// The largest operation of one node of which every rank reads all inputs. Above it, it is faster that each rank reads a
// part of them.
constexpr size_t kMaxOneShotBytes = 8 << 10;

// Calls copy(begin, end) for the bytes begin..end - 1 of the chunk that are part `part` of the operation's input, cut
// into `num_parts` equal parts.
template <typename F>
void ForPartIn(const Chunk& chunk, int part, int num_parts, F copy) {
  const size_t size = chunk.call.num_bytes / num_parts;
  const size_t begin = std::max(part * size, chunk.offset);
  const size_t end = std::min((part + 1) * size, chunk.offset + chunk.num_bytes);
  if (begin < end) copy(begin, end);
}

}  // namespace

Engine::Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
               TcpMesh* mesh, Patience* patience, const Regions* regions,
               std::optional<AllReduceAlgorithm> only)
    : topology_(topology),
      lane_{.topology = topology,
            .node = node,
            .index = local_rank,
            .segment = segment,
            .mesh = mesh,
            .regions = regions},
      segment_(segment),
      monitor_(monitor),
      mesh_(mesh),
      patience_(patience),
      only_(only),
      one_shot_tree_(lane_.local_ranks(), SingleRanks(lane_.local_ranks())),
      one_shot_inputs_(lane_.local_ranks().size()) {
  DDPRUN_CHECK(!only || FitsTopology(*only, topology), "the algorithm does not fit the topology");
  for (int i = 0; i < kNumAllReduceAlgorithms; ++i) {
    const AllReduceAlgorithm algorithm{i};
    if (FitsTopology(algorithm, topology)) all_reduces_[i] = MakeAllReduce(algorithm, lane_);
  }
}

size_t Engine::MaxChunkBytes(OpKind kind) const {
  const size_t slot = segment_->layout().chunk_bytes;
  const bool gathers = kind == OpKind::kAllGather || kind == OpKind::kAllToAll;
  return gathers ? slot / topology_.world_size() : slot;
}

void Engine::Take(const Chunk& chunk) {
  DDPRUN_CHECK(num_taken_ - num_drained_ < kMaxChunks, "the engine holds too many chunks");
  at(num_taken_++) = {.chunk = chunk};
  Fill();
}

bool Engine::Step() {
  bool moved = Fill();
  if (lane_.exists()) {
    moved |= Start();
    if (mesh_ != nullptr) moved |= mesh_->Move();
    moved |= Continue();
    moved |= Combine();
  }
  return Drain() || moved;
}

Status Engine::Await() {
  const uint64_t q = num_drained_;
  // Without this rank's input, only the end of communication stops the earliest chunk.
  if (q == num_filled_) return segment_->DeadStatus();
  if (!lane_.exists() || q < num_combined_) return AwaitGate(Gate::kCombined, q);
  if (q < num_started_) return mesh_->Await(q);
  DDPRUN_RETURN_IF_ERROR(AwaitGate(Gate::kFilled, q));
  DDPRUN_RETURN_IF_ERROR(CheckCalls(q, at(q).chunk.call));
  const int slots = segment_->layout().num_slots;
  return q < static_cast<uint64_t>(slots) ? OkStatus() : AwaitGate(Gate::kDrained, q - slots);
}

Status Engine::AwaitGate(Gate gate, uint64_t q) {
  return segment_->AwaitGate(gate, q, lane_.index, *patience_) ? OkStatus() : segment_->EndOf(q);
}

bool Engine::Fill() {
  const uint64_t q = num_filled_, slots = segment_->layout().num_slots;
  if (q == num_taken_ || (q >= slots && !segment_->IsOpen(Gate::kCombined, q - slots))) return false;
  if (!segment_->DeadStatus().ok()) return false;  // open gates stay open after communication ends
  const Chunk& chunk = at(q).chunk;
  segment_->call(q, lane_.index) = chunk.call;
  const bool contributes =
      chunk.call.kind != OpKind::kBroadcast || chunk.call.root == local_ranks().lo + lane_.index;
  bool is_shared = false;
  if (UsesRegions(chunk)) {
    Places& places = segment_->places(q, lane_.index);
    places = {.in = lane_.regions->Find(chunk.in, chunk.call.num_bytes),
              .out = lane_.regions->Find(chunk.out, chunk.call.num_bytes)};
    is_shared = places.in.region != 0;
    at(q).is_written_by_lanes = topology_.num_nodes() == 1 && places.out.region != 0;
  }
  if (contributes && !is_shared && chunk.num_bytes > 0) {
    const char* in = chunk.in + chunk.offset;
    char* slot = InputSlot(q, lane_.index, chunk.call);
    const Slice own = DirectBytes(chunk);
    std::memcpy(slot, in, own.begin);
    std::memcpy(slot + own.end, in + own.end, chunk.num_bytes - own.end);
  }
  segment_->ArriveFilled(q, lane_.index, num_drained_);
  ++num_filled_;
  return true;
}

std::optional<int> Engine::DifferentCall(uint64_t q, const Call& call) const {
  for (int r = 0; r < local_ranks().size(); ++r) {
    if (segment_->call(q, r) != call) return r;
  }
  return std::nullopt;
}

Status Engine::CheckCalls(uint64_t q, const Call& call) {
  const std::optional<int> r = DifferentCall(q, call);
  if (!r) return OkStatus();
  const auto name = [this](int local_rank) {
    return StrCat("rank ", topology_.WorldRank(local_ranks().lo + local_rank));
  };
  monitor_->SetDead(
      CallsDiffer(segment_->layout().round, name(lane_.index), call, name(*r), segment_->call(q, *r)));
  return segment_->EndOf(q);
}

bool Engine::Start() {
  const uint64_t q = num_started_, slots = segment_->layout().num_slots;
  if (q == num_filled_ || !segment_->IsOpen(Gate::kFilled, q) ||
      (q >= slots && !segment_->IsOpen(Gate::kDrained, q - slots))) {
    return false;
  }
  const Chunk& chunk = at(q).chunk;
  if (DifferentCall(q, chunk.call)) return false;  // Await ends communication
  ++num_started_;
  Post(q, chunk);
  return true;
}

void Engine::Post(uint64_t q, const Chunk& chunk) {
  if (IsOneShot(chunk.call)) return;
  switch (chunk.call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
    case OpKind::kBarrier:
      return AlgorithmFor(chunk).Start(q, chunk);
    case OpKind::kBroadcast:
      return PostBroadcast(q, chunk);
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
      return PostAllGather(q, chunk);
    case OpKind::kSend:
    case OpKind::kReceive:
      return;  // not in chunks
  }
}

bool Engine::Continue() {
  bool moved = false;
  for (uint64_t q = num_combined_; q < num_started_; ++q) {
    InFlight& c = at(q);
    // The messages of each exchange must be posted in chunk order.
    const bool in_order =
        q == num_combined_ || at(q - 1).is_reduced || at(q - 1).num_continued > c.num_continued;
    if (c.is_reduced || !in_order || (mesh_ != nullptr && mesh_->IsReceiving(q))) continue;
    switch (c.chunk.call.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduce:
      case OpKind::kReduceScatter:
      case OpKind::kBarrier:
        c.is_reduced = IsOneShot(c.chunk.call) || AlgorithmFor(c.chunk).Continue(q, c.chunk);
        break;
      default:
        c.is_reduced = true;
    }
    ++c.num_continued;
    moved = true;
  }
  return moved;
}

bool Engine::Combine() {
  const uint64_t q = num_combined_;
  if (q == num_started_ || !at(q).is_reduced || (mesh_ != nullptr && mesh_->IsSending(q))) return false;
  const Chunk& chunk = at(q).chunk;
  if (IsOneShot(chunk.call)) {
    OneShot(q, chunk);
    // First: when kCombined opens, all ranks have arrived at both gates.
    segment_->Arrive(Gate::kDrained, q, lane_.index);
  } else if (Lane::SkipsSegment(chunk)) {
    AlgorithmFor(chunk).Finish(q, chunk);
  }
  segment_->Arrive(Gate::kCombined, q, lane_.index);
  ++num_combined_;
  return true;
}

bool Engine::Drain() {
  const uint64_t q = num_drained_;
  if (q == num_filled_) return false;
  const Chunk& chunk = at(q).chunk;
  if (IsOneShot(chunk.call)) {
    if (q == num_combined_) return false;
  } else {
    if (!segment_->IsOpen(Gate::kCombined, q)) return false;
    if (chunk.num_bytes > 0 && !at(q).is_written_by_lanes) CopyOut(q, chunk);
    segment_->Arrive(Gate::kDrained, q, lane_.index);
  }
  ++num_drained_;
  return true;
}

void Engine::CopyOut(uint64_t q, const Chunk& chunk) {
  const char* result = segment_->result(q);
  const int rank = local_ranks().lo + lane_.index, world = topology_.world_size();
  switch (chunk.call.kind) {
    case OpKind::kReduce:
      if (rank != chunk.call.root) return;
      [[fallthrough]];
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kBarrier: {
      char* out = chunk.out + chunk.offset;
      const Slice own = DirectBytes(chunk);
      std::memcpy(out, result, own.begin);
      std::memcpy(out + own.end, result + own.end, chunk.num_bytes - own.end);
      return;
    }
    case OpKind::kReduceScatter:
      ForPartIn(chunk, rank, world, [&](size_t begin, size_t end) {
        const size_t part = rank * (chunk.call.num_bytes / world);
        std::memcpy(chunk.out + (begin - part), result + (begin - chunk.offset), end - begin);
      });
      return;
    case OpKind::kAllGather:
      for (int r = 0; r < world; ++r) {
        std::memcpy(chunk.out + r * chunk.call.num_bytes + chunk.offset, result + r * chunk.num_bytes,
                    chunk.num_bytes);
      }
      return;
    case OpKind::kAllToAll:
      ForPartIn(chunk, rank, world, [&](size_t begin, size_t end) {
        const size_t part_bytes = chunk.call.num_bytes / world;
        for (int r = 0; r < world; ++r) {
          std::memcpy(chunk.out + r * part_bytes + (begin - rank * part_bytes),
                      result + r * chunk.num_bytes + (begin - chunk.offset), end - begin);
        }
      });
      return;
    case OpKind::kSend:
    case OpKind::kReceive:
      return;
  }
}

bool Engine::IsOneShot(const Call& call) const {
  return topology_.num_nodes() == 1 && !only_ &&
         call.num_bytes <= std::min(kMaxOneShotBytes, MaxChunkBytes(call.kind));
}

char* Engine::InputSlot(uint64_t q, int local_rank, const Call& call) const {
  return IsOneShot(call) && call.num_bytes <= Segment::kInlineBytes ? segment_->inline_input(q, local_rank)
                                                                    : segment_->input(q, local_rank);
}

void Engine::OneShot(uint64_t q, const Chunk& chunk) {
  const int rank = lane_.index, world = local_ranks().size();
  const Call& call = chunk.call;
  const auto input = [&](int r) { return InputSlot(q, r, call); };
  // Reduces `n` bytes of all inputs, from byte `begin` on.
  const auto reduce = [&](size_t begin, size_t n) {
    for (int r = 0; r < world; ++r) one_shot_inputs_[r] = input(r) + begin;
    one_shot_tree_.Run(chunk.reduction(), one_shot_inputs_, chunk.out, n / chunk.elem_bytes(),
                       call.op == ReduceOp::kMean ? world : 1);
  };
  const size_t part = call.num_bytes / world;
  switch (call.kind) {
    case OpKind::kAllReduce:
      return reduce(0, call.num_bytes);
    case OpKind::kReduce:
      if (rank == call.root) reduce(0, call.num_bytes);
      return;
    case OpKind::kReduceScatter:
      return reduce(rank * part, part);
    case OpKind::kAllGather:
      for (int r = 0; r < world && call.num_bytes > 0; ++r) {
        std::memcpy(chunk.out + r * call.num_bytes, input(r), call.num_bytes);
      }
      return;
    case OpKind::kAllToAll:
      for (int r = 0; r < world && part > 0; ++r)
        std::memcpy(chunk.out + r * part, input(r) + rank * part, part);
      return;
    case OpKind::kBroadcast:
      if (rank != call.root && call.num_bytes > 0) std::memcpy(chunk.out, input(call.root), call.num_bytes);
      return;
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
      return;
  }
}

Slice Engine::DirectBytes(const Chunk& chunk) const {
  if (!lane_.exists() || !Lane::SkipsSegment(chunk) || IsOneShot(chunk.call)) return {};
  const Slice own = lane_.SliceOf(chunk.num_elems(), chunk.elem_bytes());
  return {own.begin * chunk.elem_bytes(), own.end * chunk.elem_bytes()};
}

AllReduce& Engine::AlgorithmFor(const Chunk& chunk) const {
  const AllReduceAlgorithm algorithm = only_ ? *only_ : ChooseAllReduce(chunk.num_bytes, topology_);
  return *all_reduces_[static_cast<int>(algorithm)];
}

void Engine::PostBroadcast(uint64_t q, const Chunk& chunk) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes, 1);
  char* result = segment_->result(q) + slice.begin;
  int root_node = 0;
  while (topology_.nodes[root_node].hi <= chunk.call.root) ++root_node;
  std::vector<TcpMesh::Message> sends, receives;
  if (root_node == lane_.node) {
    std::memcpy(result, segment_->input(q, chunk.call.root - local_ranks().lo) + slice.begin, slice.size());
    for (int h = 0; h < topology_.num_nodes(); ++h) {
      if (h != lane_.node && lane_.IsNeeded(chunk, slice.size())) {
        sends.push_back({.node = h, .parts = {Part(result, slice.size())}});
      }
    }
  } else if (lane_.IsNeeded(chunk, slice.size())) {
    receives.push_back({.node = root_node, .parts = {Part(result, slice.size())}});
  }
  if (mesh_ == nullptr) return;
  mesh_->Post({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives));
}

// The chunk's result has the layout [rank][num_bytes]. This lane gathers the columns of its slice.
void Engine::PostAllGather(uint64_t q, const Chunk& chunk) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes, 1);
  char* result = segment_->result(q);
  for (int r = local_ranks().lo; r < local_ranks().hi; ++r) {
    std::memcpy(result + r * chunk.num_bytes + slice.begin,
                segment_->input(q, r - local_ranks().lo) + slice.begin, slice.size());
  }
  if (mesh_ == nullptr || !lane_.IsNeeded(chunk, slice.size())) return;
  const auto columns_of = [&](RankRange ranks) {
    std::vector<iovec> parts;
    for (int r = ranks.lo; r < ranks.hi; ++r) {
      parts.push_back(Part(result + r * chunk.num_bytes + slice.begin, slice.size()));
    }
    return parts;
  };
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < topology_.num_nodes(); ++h) {
    if (h == lane_.node) continue;
    sends.push_back({.node = h, .parts = columns_of(local_ranks())});
    receives.push_back({.node = h, .parts = columns_of(topology_.nodes[h])});
  }
  mesh_->Post({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives));
}

}  // namespace ddprun
