// The assignment of ranks to nodes, and of slices to the ranks that exchange them between nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {

// The nodes of a group, in the order of their ranks. On every node, local rank l is lane l if l is below the size of the
// smallest node. Lane l combines slice l of each chunk and exchanges it with lane l of the other nodes.
struct Topology {
  std::vector<RankRange> nodes;
  std::vector<int> world_ranks = {};  // as HostCommunicatorOptions::world_ranks

  // The number by which messages name `rank`.
  int WorldRank(int rank) const { return world_ranks.empty() ? rank : world_ranks[rank]; }
  int world_size() const { return nodes.back().hi; }
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  int num_lanes() const {
    return std::ranges::min_element(nodes, {}, [](const RankRange& n) { return n.size(); })->size();
  }
};

// Elements begin .. end - 1.
struct Slice {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};

// Cuts n elements into `num_slices` slices of about equal size and returns slice i. Slices begin at multiples
// of `align`; the last slices may be empty.
inline Slice CutSlice(size_t n, size_t align, size_t num_slices, size_t i) {
  const size_t size = (n + num_slices * align - 1) / (num_slices * align) * align;
  return {std::min(n, i * size), std::min(n, (i + 1) * size)};
}

}  // namespace ddprun
