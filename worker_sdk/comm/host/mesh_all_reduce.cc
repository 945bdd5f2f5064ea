#include "worker_sdk/comm/host/mesh_all_reduce.h"

#include <utility>

#include "base/check.h"
#include "ddprun/status.h"

namespace ddprun {
namespace {

// Values of TcpMesh::Tag::phase, which distinguish the exchanges of the two algorithms.
enum Phase : uint32_t { kReduceScatter = 0, kAllGather = 1, kOneShot = 2 };

char* Grow(std::vector<char>* buffer, size_t num_bytes) {
  if (buffer->size() < num_bytes) buffer->resize(num_bytes);
  return buffer->data();
}

iovec Part(char* bytes, size_t num_bytes) { return {.iov_base = bytes, .iov_len = num_bytes}; }

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

char* PartialSums::AddOwn(uint64_t q, const Chunk& chunk, Slice slice) {
  const size_t size = chunk.elem_bytes();
  char* own = Grow(&own_, num_own() * slice.size() * size);
  for (size_t s = 0; s < num_own(); ++s) {
    const RankRange subtree = subtrees_[lane_.node][s];
    std::vector<const char*> inputs;
    for (int r = subtree.lo; r < subtree.hi; ++r) inputs.push_back(lane_.Input(q, r, slice, size));
    own_trees_[s].Run(chunk.reduction(), inputs, own + s * slice.size() * size, slice.size(), 1);
  }
  return own;
}

char* PartialSums::RoomForOthers(size_t num_bytes) { return Grow(&others_, num_bytes); }

void PartialSums::AddAll(const Chunk& chunk, const std::vector<const char*>& leaves, char* out,
                         size_t num_elems) const {
  const int divisor = chunk.call.op == ReduceOp::kMean ? lane_.topology.world_size() : 1;
  world_tree_.Run(chunk.reduction(), leaves, out, num_elems, divisor);
}

Status MeshOneShot::Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const size_t slice_bytes = slice.size() * size;
  char* own = sums_.AddOwn(q, chunk, slice);
  char* others = sums_.RoomForOthers(sums_.num_others() * slice_bytes);
  std::vector<const char*> leaves;
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < lane_.topology.num_nodes(); ++h) {
    const size_t num_sums = sums_.num_subtrees(h);
    char* from = h == lane_.node ? own : others;
    for (size_t s = 0; s < num_sums; ++s) leaves.push_back(from + s * slice_bytes);
    if (h == lane_.node) continue;
    others += num_sums * slice_bytes;
    if (!lane_.IsNeeded(chunk, slice.size())) continue;
    sends.push_back({.node = h, .parts = {Part(own, sums_.num_own() * slice_bytes)}});
    receives.push_back({.node = h, .parts = {Part(from, num_sums * slice_bytes)}});
  }
  DDPRUN_RETURN_IF_ERROR(lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kOneShot},
                                              std::move(sends), std::move(receives), catch_up));
  sums_.AddAll(chunk, leaves, lane_.Result(q, slice, size), slice.size());
  return OkStatus();
}

Status MeshTwoShot::Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const int num_nodes = lane_.topology.num_nodes();
  const auto piece = [&](int node) {
    return CutSlice(slice.size(), Lane::kCacheLine / size, num_nodes, node);
  };
  const Slice mine = piece(lane_.node);

  char* own = sums_.AddOwn(q, chunk, slice);
  char* others = sums_.RoomForOthers(sums_.num_others() * mine.size() * size);
  std::vector<const char*> leaves;  // for this node's piece
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < num_nodes; ++h) {
    const auto own_part = [&](size_t s, size_t begin) { return own + (s * slice.size() + begin) * size; };
    if (h == lane_.node) {
      for (size_t s = 0; s < sums_.num_own(); ++s) leaves.push_back(own_part(s, mine.begin));
      continue;
    }
    const Slice theirs = piece(h);
    if (lane_.IsNeeded(chunk, theirs.size())) {
      TcpMesh::Message& send = sends.emplace_back(TcpMesh::Message{.node = h, .parts = {}});
      for (size_t s = 0; s < sums_.num_own(); ++s) {
        send.parts.push_back(Part(own_part(s, theirs.begin), theirs.size() * size));
      }
    }
    const size_t num_sums = sums_.num_subtrees(h);
    if (lane_.IsNeeded(chunk, mine.size())) {
      receives.push_back({.node = h, .parts = {Part(others, num_sums * mine.size() * size)}});
    }
    for (size_t s = 0; s < num_sums; ++s, others += mine.size() * size) leaves.push_back(others);
  }
  DDPRUN_RETURN_IF_ERROR(lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kReduceScatter},
                                              std::move(sends), std::move(receives), catch_up));

  char* result = lane_.Result(q, slice, size);
  const auto result_part = [&](Slice part) { return Part(result + part.begin * size, part.size() * size); };
  sums_.AddAll(chunk, leaves, result + mine.begin * size, mine.size());
  sends.clear();
  receives.clear();
  for (int h = 0; h < num_nodes; ++h) {
    if (h == lane_.node) continue;
    const Slice theirs = piece(h);
    if (mine.size() > 0) sends.push_back({.node = h, .parts = {result_part(mine)}});
    if (theirs.size() > 0) receives.push_back({.node = h, .parts = {result_part(theirs)}});
  }
  return lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kAllGather}, std::move(sends),
                              std::move(receives), catch_up);
}

}  // namespace ddprun
