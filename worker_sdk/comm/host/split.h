// Which ranks form a group after a split, and which of them communicate through shared memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// What a rank passes to Communicator::Split.
struct SplitChoice {
  int32_t color = 0;  // negative: in no group
  int32_t key = 0;
};

struct SplitGroup {
  std::vector<int> members;      // ranks of the parent, by rank in the group
  std::vector<RankRange> nodes;  // ranks of the group that are consecutive and on one node
  int rank = 0;                  // this rank's in the group
  int node = 0;                  // this rank's entry in `nodes`
};

// Returns the group of the parent's rank `rank`: all ranks with its color, in the order of (key, rank). If the order
// interleaves the ranks of different nodes, a node has several entries in `nodes`.
//   choices:  by rank of the parent.
//   REQUIRES: choices[rank].color >= 0.
SplitGroup GroupOf(int rank, std::span<const SplitChoice> choices, const Topology& parent);

}  // namespace ddprun
