#include "worker_sdk/comm/host/mesh_all_reduce.h"

#include <utility>

#include "base/check.h"
#include "ddprun/status.h"

namespace ddprun {
namespace {

// Values of TcpMesh::Tag::phase, which distinguish the exchanges of the two algorithms.
enum Phase : uint32_t { kReduceScatter = 0, kAllGather = 1, kOneShot = 2 };

template <typename T>
T* Grow(std::vector<char>* buffer, size_t num_elems) {
  if (buffer->size() < num_elems * sizeof(T)) buffer->resize(num_elems * sizeof(T));
  return reinterpret_cast<T*>(buffer->data());
}

template <typename T>
iovec Part(T* elems, size_t num_elems) {
  return {.iov_base = elems, .iov_len = num_elems * sizeof(T)};
}

RankRange WorldOf(const Topology& topology) { return {0, topology.world_size()}; }

std::vector<std::vector<RankRange>> SubtreesByNode(const Topology& topology) {
  std::vector<std::vector<RankRange>> by_node;
  for (const RankRange& ranks : topology.nodes) by_node.push_back(SubtreesWithin(WorldOf(topology), ranks));
  return by_node;
}

std::vector<SumTree> TreesOver(const std::vector<RankRange>& subtrees) {
  std::vector<SumTree> trees;
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

template <typename T>
T* PartialSums::AddOwn(uint64_t q, Slice slice) {
  T* own = Grow<T>(&own_, num_own() * slice.size());
  for (size_t s = 0; s < num_own(); ++s) {
    const RankRange subtree = subtrees_[lane_.node][s];
    std::vector<const T*> inputs;
    for (int r = subtree.lo; r < subtree.hi; ++r) inputs.push_back(lane_.Input<T>(q, r, slice));
    own_trees_[s].Run<T>(inputs, own + s * slice.size(), slice.size(), T{1});
  }
  return own;
}

template <typename T>
T* PartialSums::RoomForOthers(size_t num_elems) {
  return Grow<T>(&others_, num_elems);
}

template <typename T>
void PartialSums::AddAll(const std::vector<const T*>& leaves, bool mean, T* out, size_t num_elems) const {
  const T divisor = mean ? static_cast<T>(lane_.topology.world_size()) : T{1};
  world_tree_.Run<T>(leaves, out, num_elems, divisor);
}

Status MeshOneShot::Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  return chunk.call.elem_bytes == sizeof(double) ? RunOn<double>(q, chunk, catch_up)
                                                 : RunOn<float>(q, chunk, catch_up);
}

template <typename T>
Status MeshOneShot::RunOn(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes / sizeof(T), sizeof(T));
  T* own = sums_.AddOwn<T>(q, slice);
  T* others = sums_.RoomForOthers<T>(sums_.num_others() * slice.size());
  std::vector<const T*> leaves;
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < lane_.topology.num_nodes(); ++h) {
    const size_t num_sums = sums_.num_subtrees(h);
    T* from = h == lane_.node ? own : others;
    for (size_t s = 0; s < num_sums; ++s) leaves.push_back(from + s * slice.size());
    if (h == lane_.node) continue;
    others += num_sums * slice.size();
    if (!lane_.IsNeeded(chunk, slice.size())) continue;
    sends.push_back({.node = h, .parts = {Part(own, sums_.num_own() * slice.size())}});
    receives.push_back({.node = h, .parts = {Part(from, num_sums * slice.size())}});
  }
  DDPRUN_RETURN_IF_ERROR(lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kOneShot},
                                              std::move(sends), std::move(receives), catch_up));
  sums_.AddAll<T>(leaves, chunk.call.mean, lane_.Result<T>(q, slice), slice.size());
  return OkStatus();
}

Status MeshTwoShot::Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  return chunk.call.elem_bytes == sizeof(double) ? RunOn<double>(q, chunk, catch_up)
                                                 : RunOn<float>(q, chunk, catch_up);
}

template <typename T>
Status MeshTwoShot::RunOn(uint64_t q, const Chunk& chunk, CatchUp catch_up) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes / sizeof(T), sizeof(T));
  const int num_nodes = lane_.topology.num_nodes();
  const auto piece = [&](int node) {
    return CutSlice(slice.size(), Lane::kCacheLine / sizeof(T), num_nodes, node);
  };
  const Slice mine = piece(lane_.node);

  T* own = sums_.AddOwn<T>(q, slice);
  T* others = sums_.RoomForOthers<T>(sums_.num_others() * mine.size());
  std::vector<const T*> leaves;  // for this node's piece
  std::vector<TcpMesh::Message> sends, receives;
  for (int h = 0; h < num_nodes; ++h) {
    if (h == lane_.node) {
      for (size_t s = 0; s < sums_.num_own(); ++s) leaves.push_back(own + s * slice.size() + mine.begin);
      continue;
    }
    const Slice theirs = piece(h);
    if (lane_.IsNeeded(chunk, theirs.size())) {
      TcpMesh::Message& send = sends.emplace_back(TcpMesh::Message{.node = h, .parts = {}});
      for (size_t s = 0; s < sums_.num_own(); ++s) {
        send.parts.push_back(Part(own + s * slice.size() + theirs.begin, theirs.size()));
      }
    }
    const size_t num_sums = sums_.num_subtrees(h);
    if (lane_.IsNeeded(chunk, mine.size())) {
      receives.push_back({.node = h, .parts = {Part(others, num_sums * mine.size())}});
    }
    for (size_t s = 0; s < num_sums; ++s, others += mine.size()) leaves.push_back(others);
  }
  DDPRUN_RETURN_IF_ERROR(lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kReduceScatter},
                                              std::move(sends), std::move(receives), catch_up));

  T* result = lane_.Result<T>(q, slice);
  sums_.AddAll<T>(leaves, chunk.call.mean, result + mine.begin, mine.size());
  sends.clear();
  receives.clear();
  for (int h = 0; h < num_nodes; ++h) {
    if (h == lane_.node) continue;
    const Slice theirs = piece(h);
    if (mine.size() > 0) sends.push_back({.node = h, .parts = {Part(result + mine.begin, mine.size())}});
    if (theirs.size() > 0)
      receives.push_back({.node = h, .parts = {Part(result + theirs.begin, theirs.size())}});
  }
  return lane_.mesh->Exchange({.call = chunk.call, .chunk = q, .phase = kAllGather}, std::move(sends),
                              std::move(receives), catch_up);
}

}  // namespace ddprun
