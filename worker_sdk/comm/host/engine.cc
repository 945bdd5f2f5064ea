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
               TcpMesh* mesh, Patience* patience, std::optional<AllReduceAlgorithm> only)
    : topology_(topology),
      lane_{.topology = topology, .node = node, .index = local_rank, .segment = segment, .mesh = mesh},
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

Status Engine::Await(Gate gate, uint64_t q) {
  return segment_->AwaitGate(gate, q, lane_.index, *patience_) ? OkStatus() : segment_->EndOf(q);
}

Status Engine::AwaitOrCatchUp(Gate gate, uint64_t q, CatchUp catch_up) {
  if (!segment_->IsOpen(gate, q)) DDPRUN_RETURN_IF_ERROR(catch_up());
  return Await(gate, q);
}

Status Engine::Fill(uint64_t q, const Chunk& chunk) {
  DDPRUN_RETURN_IF_ERROR(
      segment_->DeadStatus());  // open gates stay open after communication ends, so check it
  if (q >= kNumSlots) DDPRUN_RETURN_IF_ERROR(Await(Gate::kCombined, q - kNumSlots));
  segment_->call(q, lane_.index) = chunk.call;
  const bool contributes =
      chunk.call.kind != OpKind::kBroadcast || chunk.call.root == local_ranks().lo + lane_.index;
  if (contributes && chunk.num_bytes > 0) {
    const char* in = chunk.in + chunk.offset;
    char* slot = segment_->input(q, lane_.index);
    const Slice own = SkipsSegment(chunk.call) ? OwnBytes(chunk) : Slice();
    std::memcpy(slot, in, own.begin);
    std::memcpy(slot + own.end, in + own.end, chunk.num_bytes - own.end);
  }
  segment_->Arrive(Gate::kFilled, q);
  return OkStatus();
}

Status Engine::CheckCalls(uint64_t q, const Call& call) {
  for (int r = 0; r < local_ranks().size(); ++r) {
    const Call& other = segment_->call(q, r);
    if (other == call) continue;
    monitor_->SetDead(InvalidArgumentError(
        StrCat("the calls of round ", segment_->layout().round, " differ: operation ", call.index,
               " of rank ", local_ranks().lo + lane_.index, " is ", Describe(call), ", operation ",
               other.index, " of rank ", local_ranks().lo + r, " is ", Describe(other))));
    return segment_->EndOf(q);
  }
  return OkStatus();
}

Status Engine::Combine(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  if (!lane_.exists()) return OkStatus();
  DDPRUN_RETURN_IF_ERROR(AwaitOrCatchUp(Gate::kFilled, q, catch_up));
  DDPRUN_RETURN_IF_ERROR(CheckCalls(q, chunk.call));
  if (q >= kNumSlots) DDPRUN_RETURN_IF_ERROR(AwaitOrCatchUp(Gate::kDrained, q - kNumSlots, catch_up));
  if (IsOneShot(chunk.call)) {
    OneShot(q, chunk);
    segment_->Arrive(Gate::kDrained, q);  // first: when kCombined opens, all ranks have arrived at both
    segment_->Arrive(Gate::kCombined, q);
    return OkStatus();
  }
  switch (chunk.call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
    case OpKind::kBarrier:
      DDPRUN_RETURN_IF_ERROR(AllReduceSlice(q, chunk, catch_up));
      break;
    case OpKind::kBroadcast:
      DDPRUN_RETURN_IF_ERROR(BroadcastSlice(q, chunk, catch_up));
      break;
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
      DDPRUN_RETURN_IF_ERROR(AllGatherSlice(q, chunk, catch_up));
      break;
  }
  if (chunk.num_bytes > 0 && SkipsSegment(chunk.call)) {
    const Slice own = OwnBytes(chunk);
    std::memcpy(chunk.out + chunk.offset + own.begin, segment_->result(q) + own.begin, own.size());
  }
  segment_->Arrive(Gate::kCombined, q);
  return OkStatus();
}

Status Engine::Drain(uint64_t q, const Chunk& chunk) {
  if (IsOneShot(chunk.call)) return OkStatus();
  DDPRUN_RETURN_IF_ERROR(Await(Gate::kCombined, q));
  if (chunk.num_bytes > 0) CopyOut(segment_->result(q), chunk);
  segment_->Arrive(Gate::kDrained, q);
  return OkStatus();
}

void Engine::CopyOut(const char* result, const Chunk& chunk) {
  const int rank = local_ranks().lo + lane_.index, world = topology_.world_size();
  switch (chunk.call.kind) {
    case OpKind::kReduce:
      if (rank != chunk.call.root) return;
      [[fallthrough]];
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kBarrier: {
      char* out = chunk.out + chunk.offset;
      const Slice own = SkipsSegment(chunk.call) ? OwnBytes(chunk) : Slice();
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
  }
}

bool Engine::IsOneShot(const Call& call) const {
  return topology_.num_nodes() == 1 && !only_ &&
         call.num_bytes <= std::min(kMaxOneShotBytes, MaxChunkBytes(call.kind));
}

void Engine::OneShot(uint64_t q, const Chunk& chunk) {
  const int rank = lane_.index, world = local_ranks().size();
  const Call& call = chunk.call;
  const auto input = [&](int r) { return segment_->input(q, r); };
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
      return;
  }
}

bool Engine::SkipsSegment(const Call& call) const {
  return call.kind == OpKind::kAllReduce && topology_.num_nodes() == 1 && !IsOneShot(call);
}

Slice Engine::OwnBytes(const Chunk& chunk) const {
  const Slice own = lane_.SliceOf(chunk.num_elems(), chunk.elem_bytes());
  return {own.begin * chunk.elem_bytes(), own.end * chunk.elem_bytes()};
}

Status Engine::AllReduceSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const AllReduceAlgorithm algorithm = only_ ? *only_ : ChooseAllReduce(chunk.num_bytes, topology_);
  return all_reduces_[static_cast<int>(algorithm)]->Run(q, chunk, catch_up);
}

Status Engine::BroadcastSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
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
  if (mesh_ == nullptr) return OkStatus();
  return mesh_->Exchange({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives), catch_up);
}

// The chunk's result has the layout [rank][num_bytes]. This lane gathers the columns of its slice.
Status Engine::AllGatherSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes, 1);
  char* result = segment_->result(q);
  for (int r = local_ranks().lo; r < local_ranks().hi; ++r) {
    std::memcpy(result + r * chunk.num_bytes + slice.begin,
                segment_->input(q, r - local_ranks().lo) + slice.begin, slice.size());
  }
  if (mesh_ == nullptr || !lane_.IsNeeded(chunk, slice.size())) return OkStatus();
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
  return mesh_->Exchange({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives), catch_up);
}

}  // namespace ddprun
