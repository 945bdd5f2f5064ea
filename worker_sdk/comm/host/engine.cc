#include "worker_sdk/comm/host/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker_sdk/comm/check.h"

namespace ddprun {
namespace {

constexpr size_t kCacheLine = 64;

std::vector<RankRange> SingleRanks(RankRange range) {
  std::vector<RankRange> ranks;
  for (int r = range.lo; r < range.hi; ++r) ranks.push_back({r, r + 1});
  return ranks;
}

template <typename T>
T* Grow(std::vector<char>* buffer, size_t num_elems) {
  if (buffer->size() < num_elems * sizeof(T)) buffer->resize(num_elems * sizeof(T));
  return reinterpret_cast<T*>(buffer->data());
}

template <typename T>
iovec Part(T* elems, size_t num_elems) {
  return {.iov_base = elems, .iov_len = num_elems * sizeof(T)};
}

const char* NameOf(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all-reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "all-gather";
  }
  return "unknown operation";
}

std::string Describe(const Call& call) {
  return absl::StrCat(NameOf(call.kind), call.mean ? " (mean)" : "", " of ", call.num_bytes,
                      " bytes in elements of ", call.elem_bytes,
                      call.kind == OpKind::kBroadcast ? absl::StrCat(" from rank ", call.root) : "");
}

}  // namespace

Engine::Engine(const Topology& topology, int node, int local_rank, Segment* segment, Monitor* monitor,
               TcpMesh* mesh)
    : topology_(topology), node_(node), lane_(local_rank), segment_(segment), monitor_(monitor), mesh_(mesh) {
  const RankRange world{0, topology_.world_size()};
  std::vector<RankRange> all;
  for (const RankRange& ranks : topology_.nodes) {
    subtrees_.push_back(SubtreesWithin(world, ranks));
    all.insert(all.end(), subtrees_.back().begin(), subtrees_.back().end());
  }
  for (const RankRange& subtree : subtrees_[node_]) own_trees_.emplace_back(subtree, SingleRanks(subtree));
  world_tree_.emplace(world, all);
}

size_t Engine::MaxChunkBytes(OpKind kind) const {
  const size_t slot = segment_->layout().chunk_bytes;
  return kind == OpKind::kAllGather ? slot / topology_.world_size() : slot;
}

absl::Status Engine::Await(Gate gate, uint64_t q) {
  return segment_->AwaitGate(gate, q, lane_) ? absl::OkStatus() : segment_->EndOf(q);
}

absl::Status Engine::AwaitOrCatchUp(Gate gate, uint64_t q, CatchUp catch_up) {
  if (!segment_->IsOpen(gate, q)) RETURN_IF_ERROR(catch_up());
  return Await(gate, q);
}

absl::Status Engine::Fill(uint64_t q, const Chunk& chunk) {
  RETURN_IF_ERROR(segment_->DeadStatus());  // gates that are open stay open
  if (q >= kNumSlots) RETURN_IF_ERROR(Await(Gate::kCombined, q - kNumSlots));
  segment_->call(q, lane_) = chunk.call;
  const bool contributes =
      chunk.call.kind != OpKind::kBroadcast || chunk.call.root == local_ranks().lo + lane_;
  if (contributes && chunk.num_bytes > 0) {
    std::memcpy(segment_->input(q, lane_), chunk.in + chunk.offset, chunk.num_bytes);
  }
  segment_->Arrive(Gate::kFilled, q);
  return absl::OkStatus();
}

absl::Status Engine::CheckCalls(uint64_t q, const Call& call) {
  for (int r = 0; r < local_ranks().size(); ++r) {
    const Call& other = segment_->call(q, r);
    if (other == call) continue;
    monitor_->SetDead(absl::InvalidArgumentError(
        absl::StrCat("the calls of round ", segment_->layout().round, " differ: operation ", call.index,
                     " of rank ", local_ranks().lo + lane_, " is ", Describe(call), ", operation ",
                     other.index, " of rank ", local_ranks().lo + r, " is ", Describe(other))));
    return segment_->EndOf(q);
  }
  return absl::OkStatus();
}

absl::Status Engine::Combine(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  if (!is_lane()) return absl::OkStatus();
  RETURN_IF_ERROR(AwaitOrCatchUp(Gate::kFilled, q, catch_up));
  RETURN_IF_ERROR(CheckCalls(q, chunk.call));
  if (q >= kNumSlots) RETURN_IF_ERROR(AwaitOrCatchUp(Gate::kDrained, q - kNumSlots, catch_up));
  switch (chunk.call.kind) {
    case OpKind::kAllReduce:
      RETURN_IF_ERROR(chunk.call.elem_bytes == sizeof(double) ? AllReduceSlice<double>(q, chunk, catch_up)
                                                              : AllReduceSlice<float>(q, chunk, catch_up));
      break;
    case OpKind::kBroadcast:
      RETURN_IF_ERROR(BroadcastSlice(q, chunk, catch_up));
      break;
    case OpKind::kAllGather:
      RETURN_IF_ERROR(AllGatherSlice(q, chunk, catch_up));
      break;
  }
  segment_->Arrive(Gate::kCombined, q);
  return absl::OkStatus();
}

absl::Status Engine::Drain(uint64_t q, const Chunk& chunk) {
  RETURN_IF_ERROR(Await(Gate::kCombined, q));
  const char* result = segment_->result(q);
  if (chunk.num_bytes > 0) {
    if (chunk.call.kind == OpKind::kAllGather) {
      for (int r = 0; r < topology_.world_size(); ++r) {
        std::memcpy(chunk.out + r * chunk.call.num_bytes + chunk.offset, result + r * chunk.num_bytes,
                    chunk.num_bytes);
      }
    } else {
      std::memcpy(chunk.out + chunk.offset, result, chunk.num_bytes);
    }
  }
  segment_->Arrive(Gate::kDrained, q);
  return absl::OkStatus();
}

template <typename T>
absl::Status Engine::AllReduceSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice =
      CutSlice(chunk.num_bytes / sizeof(T), kCacheLine / sizeof(T), topology_.num_lanes(), lane_);
  const T divisor = chunk.call.mean ? static_cast<T>(topology_.world_size()) : T{1};
  if (mesh_ != nullptr) return AllReduceAcrossNodes<T>(q, chunk, slice, divisor, catch_up);
  std::vector<const T*> inputs;
  for (int r = 0; r < local_ranks().size(); ++r) {
    inputs.push_back(reinterpret_cast<const T*>(segment_->input(q, r)) + slice.begin);
  }
  own_trees_[0].Run<T>(inputs, reinterpret_cast<T*>(segment_->result(q)) + slice.begin, slice.size(),
                       divisor);
  return absl::OkStatus();
}

// The slice is cut once more, into a piece a node: every node sends its sums of piece h to node h, which adds
// them up in the tree's order and sends the piece of the result to all.
template <typename T>
absl::Status Engine::AllReduceAcrossNodes(uint64_t q, const Chunk& chunk, Slice slice, T divisor,
                                          CatchUp catch_up) {
  const int num_nodes = topology_.num_nodes();
  const auto piece = [&](int node) {
    return CutSlice(slice.size(), kCacheLine / sizeof(T), num_nodes, node);
  };
  const auto num_subtrees = [&](int node) { return subtrees_[node].size(); };

  const size_t num_own = num_subtrees(node_);
  T* own_sums = Grow<T>(&own_sums_, num_own * slice.size());
  for (size_t s = 0; s < num_own; ++s) {
    std::vector<const T*> inputs;
    for (int r = subtrees_[node_][s].lo; r < subtrees_[node_][s].hi; ++r) {
      inputs.push_back(reinterpret_cast<const T*>(segment_->input(q, r - local_ranks().lo)) + slice.begin);
    }
    own_trees_[s].Run<T>(inputs, own_sums + s * slice.size(), slice.size(), T{1});
  }

  size_t num_others = 0;
  for (int h = 0; h < num_nodes; ++h) num_others += h == node_ ? 0 : num_subtrees(h);
  T* others_sums = Grow<T>(&others_sums_, num_others * piece(node_).size());
  std::vector<const T*> leaves;  // of the world's tree, for this node's piece
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < num_nodes; ++h) {
    if (h == node_) {
      for (size_t s = 0; s < num_own; ++s) leaves.push_back(own_sums + s * slice.size() + piece(node_).begin);
      continue;
    }
    if (IsNeeded(chunk, piece(h).size())) {
      TcpMesh::Message& send = sends.emplace_back(TcpMesh::Message{.node = h, .parts = {}});
      for (size_t s = 0; s < num_own; ++s) {
        send.parts.push_back(Part(own_sums + s * slice.size() + piece(h).begin, piece(h).size()));
      }
    }
    const size_t num_incoming = num_subtrees(h) * piece(node_).size();
    if (IsNeeded(chunk, num_incoming)) {
      receives.push_back({.node = h, .parts = {Part(others_sums, num_incoming)}});
    }
    for (size_t s = 0; s < num_subtrees(h); ++s, others_sums += piece(node_).size())
      leaves.push_back(others_sums);
  }
  RETURN_IF_ERROR(mesh_->Exchange({.call = chunk.call, .chunk = q, .phase = 0}, std::move(sends),
                                  std::move(receives), catch_up));

  T* result = reinterpret_cast<T*>(segment_->result(q)) + slice.begin;
  world_tree_->Run<T>(leaves, result + piece(node_).begin, piece(node_).size(), divisor);
  sends.clear();
  receives.clear();
  for (int h = 0; h < num_nodes; ++h) {
    if (h == node_) continue;
    const Slice mine = piece(node_), theirs = piece(h);
    if (mine.size() > 0) sends.push_back({.node = h, .parts = {Part(result + mine.begin, mine.size())}});
    if (theirs.size() > 0)
      receives.push_back({.node = h, .parts = {Part(result + theirs.begin, theirs.size())}});
  }
  return mesh_->Exchange({.call = chunk.call, .chunk = q, .phase = 1}, std::move(sends), std::move(receives),
                         catch_up);
}

absl::Status Engine::BroadcastSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice = CutSlice(chunk.num_bytes, kCacheLine, topology_.num_lanes(), lane_);
  char* result = segment_->result(q) + slice.begin;
  int root_node = 0;
  while (topology_.nodes[root_node].hi <= chunk.call.root) ++root_node;
  std::vector<TcpMesh::Message> sends, receives;
  if (root_node == node_) {
    std::memcpy(result, segment_->input(q, chunk.call.root - local_ranks().lo) + slice.begin, slice.size());
    for (int h = 0; h < topology_.num_nodes(); ++h) {
      if (h != node_ && IsNeeded(chunk, slice.size())) {
        sends.push_back({.node = h, .parts = {Part(result, slice.size())}});
      }
    }
  } else if (IsNeeded(chunk, slice.size())) {
    receives.push_back({.node = root_node, .parts = {Part(result, slice.size())}});
  }
  if (mesh_ == nullptr) return absl::OkStatus();
  return mesh_->Exchange({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives), catch_up);
}

// The chunk's result is [rank][num_bytes]; this lane brings the columns of its slice.
absl::Status Engine::AllGatherSlice(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice = CutSlice(chunk.num_bytes, kCacheLine, topology_.num_lanes(), lane_);
  char* result = segment_->result(q);
  for (int r = local_ranks().lo; r < local_ranks().hi; ++r) {
    std::memcpy(result + r * chunk.num_bytes + slice.begin,
                segment_->input(q, r - local_ranks().lo) + slice.begin, slice.size());
  }
  if (mesh_ == nullptr || !IsNeeded(chunk, slice.size())) return absl::OkStatus();
  const auto columns_of = [&](RankRange ranks) {
    std::vector<iovec> parts;
    for (int r = ranks.lo; r < ranks.hi; ++r) {
      parts.push_back(Part(result + r * chunk.num_bytes + slice.begin, slice.size()));
    }
    return parts;
  };
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < topology_.num_nodes(); ++h) {
    if (h == node_) continue;
    sends.push_back({.node = h, .parts = columns_of(local_ranks())});
    receives.push_back({.node = h, .parts = columns_of(topology_.nodes[h])});
  }
  return mesh_->Exchange({.call = chunk.call, .chunk = q}, std::move(sends), std::move(receives), catch_up);
}

}  // namespace ddprun
