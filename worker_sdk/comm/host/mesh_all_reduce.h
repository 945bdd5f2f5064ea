// The all-reduce algorithms for several nodes; all_reduce_choice.h compares their traffic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker_sdk/comm/host/all_reduce.h"
#include "worker_sdk/comm/host/lane.h"
#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {

// Computes the partial sums that both algorithms use ("sum" and "add" stand for every reduction). Every node adds the inputs of its own ranks as far as
// the tree over all ranks allows. The result is one partial sum for each of the node's maximal subtrees
// (SubtreesWithin). The remaining additions of the tree then combine the partial sums of all nodes.
class PartialSums {
 public:
  explicit PartialSums(const Lane& lane);

  // Number of partial sums of `node`.
  size_t num_subtrees(int node) const { return subtrees_[node].size(); }
  size_t num_own() const { return num_subtrees(lane_.node); }
  // Total number of partial sums of all other nodes.
  size_t num_others() const { return leaves_.size() - num_own(); }

  // Computes this node's partial sums of the slice; returns num_own() pointers to slice.size() elements. They are valid
  // until chunk `q` is complete.
  std::vector<const char*> AddOwn(uint64_t q, const Chunk& chunk, Slice slice);
  // Returns a buffer for the partial sums of other nodes, valid until chunk `q` is complete.
  char* RoomForOthers(uint64_t q, size_t num_bytes);
  // Adds `leaves`, the partial sums of all nodes in node order, and writes the chunk's reduction to `out`.
  void AddAll(const Chunk& chunk, const std::vector<const char*>& leaves, char* out, size_t num_elems) const;

 private:
  const Lane lane_;
  const std::vector<std::vector<RankRange>> subtrees_;  // by node
  const std::vector<ReductionTree> own_trees_;          // one per subtree of this node
  const std::vector<RankRange> leaves_;                 // the subtrees of all nodes
  const ReductionTree world_tree_;                      // over leaves_
  // By chunk % kMaxSlots.
  std::array<std::vector<char>, kMaxSlots> own_;
  std::array<std::vector<char>, kMaxSlots> others_;
};

// Implements kMeshOneShot.
class MeshOneShot : public AllReduce {
 public:
  // REQUIRES: several nodes.
  explicit MeshOneShot(const Lane& lane) : lane_(lane), sums_(lane) {}

  void Start(uint64_t q, const Chunk& chunk) override;
  bool Continue(uint64_t q, const Chunk& chunk) override;
  void Finish(uint64_t q, const Chunk& chunk) override;

 private:
  const Lane lane_;
  PartialSums sums_;
  // By chunk % kMaxSlots: the partial sums of all nodes.
  std::array<std::vector<const char*>, kMaxSlots> leaves_;
};

// Implements kMeshTwoShot, which cuts the slice into one piece per node. Every node sends its partial sums of
// piece h to node h. Node h adds these partial sums and sends piece h of the result to all other nodes.
class MeshTwoShot : public AllReduce {
 public:
  // REQUIRES: several nodes.
  explicit MeshTwoShot(const Lane& lane) : lane_(lane), sums_(lane) {}

  void Start(uint64_t q, const Chunk& chunk) override;
  bool Continue(uint64_t q, const Chunk& chunk) override;
  void Finish(uint64_t q, const Chunk& chunk) override;

 private:
  struct State {
    std::vector<const char*> leaves;  // the partial sums of all nodes, of this node's piece
    bool gathers = false;             // the second exchange was posted
  };
  // True if the pieces of other nodes are received in the caller's output, because no other rank of the node needs them.
  // A piece may overwrite the input: its owner sends the result after it has received this node's partial sums.
  bool ReceivesInOutput(const Chunk& chunk) const {
    return lane_.SkipsSegment(chunk) && lane_.local_ranks().size() == 1;
  }
  // The piece of `node`, in elements of the slice.
  Slice PieceOf(int node, Slice slice, size_t elem_bytes) const {
    return CutSlice(slice.size(), Lane::kCacheLine / elem_bytes, lane_.topology.num_nodes(), node);
  }

  const Lane lane_;
  PartialSums sums_;
  std::array<State, kMaxSlots> states_;  // by chunk % kMaxSlots
};

}  // namespace ddprun
