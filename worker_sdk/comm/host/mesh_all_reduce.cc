#include "worker_sdk/comm/host/mesh_all_reduce.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace ddprun {
namespace {

// Values of TcpMesh::Tag::phase, which distinguish the exchanges of the two algorithms. kAllGather is the second exchange
// of a chunk.
enum Phase : uint32_t { kReduceScatter = 0, kAllGather = 1, kOneShot = 2 };

char* Grow(std::vector<char>* buffer, size_t num_bytes) {
  if (buffer->size() < num_bytes) buffer->resize(num_bytes);
  return buffer->data();
}

// `bytes` are written only if the part is received.
iovec Part(const char* bytes, size_t num_bytes) {
  return {.iov_base = const_cast<char*>(bytes), .iov_len = num_bytes};
}

RankRange WorldOf(const Topology& topology) { return {0, topology.world_size()}; }

std::vector<std::vector<RankRange>> SubtreesByNode(const Topology& topology) {
  std::vector<std::vector<RankRange>> by_node;
  for (const RankRange& ranks : topology.nodes) by_node.push_back(SubtreesWithin(WorldOf(topology), ranks));
  return by_node;
}

std::vector<ReductionTree> TreesOver(const std::vector<RankRange>& subtrees) {
  std::vector<ReductionTree> trees;
  for (const RankRange& subtree : subtrees) trees.emplace_back(subtree, SingleRanks(subtree));
  return trees;
}

std::vector<RankRange> Concatenate(const std::vector<std::vector<RankRange>>& by_node) {
  std::vector<RankRange> all;
  for (const auto& ranges : by_node) all.insert(all.end(), ranges.begin(), ranges.end());
  return all;
}

}  // namespace

PartialSums::PartialSums(const Lane& lane)
    : lane_(lane),
      subtrees_(SubtreesByNode(lane.topology)),
      own_trees_(TreesOver(subtrees_[lane.node])),
      leaves_(Concatenate(subtrees_)),
      world_tree_(WorldOf(lane.topology), leaves_) {
  DDPRUN_CHECK(lane.mesh != nullptr, "there is only one node");
}

std::vector<const char*> PartialSums::AddOwn(uint64_t q, const Chunk& chunk, Slice slice) {
  const size_t size = chunk.elem_bytes(), slice_bytes = slice.size() * size;
  char* room = Grow(&own_[q % kMaxSlots], num_own() * slice_bytes);
  std::vector<const char*> sums;
  for (size_t s = 0; s < num_own(); ++s, room += slice_bytes) {
    const RankRange subtree = subtrees_[lane_.node][s];
    std::vector<const char*> inputs;
    for (int r = subtree.lo; r < subtree.hi; ++r) inputs.push_back(lane_.Input(q, chunk, r, slice));
    sums.push_back(inputs.size() == 1 ? inputs[0] : room);
    if (inputs.size() > 1) own_trees_[s].Run(chunk.reduction(), inputs, room, slice.size(), 1);
  }
  return sums;
}

char* PartialSums::RoomForOthers(uint64_t q, size_t num_bytes) {
  return Grow(&others_[q % kMaxSlots], num_bytes);
}

void PartialSums::AddAll(const Chunk& chunk, const std::vector<const char*>& leaves, char* out,
                         size_t num_elems) const {
  const int divisor = chunk.call.op == ReduceOp::kMean ? lane_.topology.world_size() : 1;
  world_tree_.Run(chunk.reduction(), leaves, out, num_elems, divisor);
}

void MeshOneShot::Start(uint64_t q, const Chunk& chunk) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const size_t slice_bytes = slice.size() * size;
  const std::vector<const char*> own = sums_.AddOwn(q, chunk, slice);
  char* others = sums_.RoomForOthers(q, sums_.num_others() * slice_bytes);
  std::vector<const char*>& leaves = leaves_[q % kMaxSlots];
  leaves.clear();
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < lane_.topology.num_nodes(); ++h) {
    if (h == lane_.node) {
      leaves.insert(leaves.end(), own.begin(), own.end());
      continue;
    }
    const size_t num_sums = sums_.num_subtrees(h);
    if (lane_.IsNeeded(chunk, slice.size())) {
      TcpMesh::Message& send = sends.emplace_back(TcpMesh::Message{.node = h, .parts = {}});
      for (const char* sum : own) send.parts.push_back(Part(sum, slice_bytes));
      receives.push_back({.node = h, .parts = {Part(others, num_sums * slice_bytes)}});
    }
    for (size_t s = 0; s < num_sums; ++s, others += slice_bytes) leaves.push_back(others);
  }
  lane_.mesh->Post({.call = chunk.call, .chunk = q, .phase = kOneShot}, std::move(sends),
                   std::move(receives));
}

bool MeshOneShot::Continue(uint64_t q, const Chunk& chunk) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  sums_.AddAll(chunk, leaves_[q % kMaxSlots], lane_.Result(q, slice, size), slice.size());
  return true;
}

void MeshOneShot::Finish(uint64_t q, const Chunk& chunk) { lane_.CopyToOutput(q, chunk); }

void MeshTwoShot::Start(uint64_t q, const Chunk& chunk) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const Slice mine = PieceOf(lane_.node, slice, size);
  const std::vector<const char*> own = sums_.AddOwn(q, chunk, slice);
  char* others = sums_.RoomForOthers(q, sums_.num_others() * mine.size() * size);
  State& state = states_[q % kMaxSlots];
  state = {};
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < lane_.topology.num_nodes(); ++h) {
    if (h == lane_.node) {
      for (const char* sum : own) state.leaves.push_back(sum + mine.begin * size);
      continue;
    }
    const Slice theirs = PieceOf(h, slice, size);
    if (lane_.IsNeeded(chunk, theirs.size())) {
      TcpMesh::Message& send = sends.emplace_back(TcpMesh::Message{.node = h, .parts = {}});
      for (const char* sum : own) send.parts.push_back(Part(sum + theirs.begin * size, theirs.size() * size));
    }
    const size_t num_sums = sums_.num_subtrees(h);
    if (lane_.IsNeeded(chunk, mine.size())) {
      receives.push_back({.node = h, .parts = {Part(others, num_sums * mine.size() * size)}});
    }
    for (size_t s = 0; s < num_sums; ++s, others += mine.size() * size) state.leaves.push_back(others);
  }
  lane_.mesh->Post({.call = chunk.call, .chunk = q, .phase = kReduceScatter}, std::move(sends),
                   std::move(receives));
}

bool MeshTwoShot::Continue(uint64_t q, const Chunk& chunk) {
  State& state = states_[q % kMaxSlots];
  if (state.gathers) return true;
  state.gathers = true;
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const Slice mine = PieceOf(lane_.node, slice, size);
  char* result = lane_.Result(q, slice, size);
  char* gathered = ReceivesInOutput(chunk) ? Lane::Output(chunk, slice) : result;
  const auto part_of = [&](char* begin, Slice part) {
    return Part(begin + part.begin * size, part.size() * size);
  };
  sums_.AddAll(chunk, state.leaves, result + mine.begin * size, mine.size());
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < lane_.topology.num_nodes(); ++h) {
    if (h == lane_.node) continue;
    const Slice theirs = PieceOf(h, slice, size);
    if (mine.size() > 0) sends.push_back({.node = h, .parts = {part_of(result, mine)}});
    if (theirs.size() > 0) receives.push_back({.node = h, .parts = {part_of(gathered, theirs)}});
  }
  lane_.mesh->Post({.call = chunk.call, .chunk = q, .phase = kAllGather, .exchange = 1}, std::move(sends),
                   std::move(receives));
  return false;
}

void MeshTwoShot::Finish(uint64_t q, const Chunk& chunk) {
  if (!ReceivesInOutput(chunk)) return lane_.CopyToOutput(q, chunk);
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const Slice mine = PieceOf(lane_.node, slice, size);
  if (mine.size() == 0) return;
  std::memcpy(Lane::Output(chunk, slice) + mine.begin * size,
              lane_.Result(q, slice, size) + mine.begin * size, mine.size() * size);
}

}  // namespace ddprun
