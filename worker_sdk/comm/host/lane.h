// One lane of a node: its position in the topology, and the memory and connections that it uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// A view: all objects that a Lane refers to must outlive it. A local rank beyond the number of lanes also has
// a Lane; exists() is then false, and the rank does not combine any slice.
struct Lane {
  static constexpr size_t kCacheLine = 64;  // bytes; slices begin at multiples of this

  const Topology& topology;
  int node = 0;
  int index = 0;  // the local rank
  Segment* segment = nullptr;
  TcpMesh* mesh = nullptr;  // null if there is only one node

  RankRange local_ranks() const { return topology.nodes[node]; }
  bool exists() const { return index < topology.num_lanes(); }

  // This lane's slice of `n` elements of `elem_bytes` bytes each.
  Slice SliceOf(size_t n, size_t elem_bytes) const {
    return CutSlice(n, kCacheLine / elem_bytes, topology.num_lanes(), index);
  }
  // The input of `rank`, which is on this node, starting at the slice's first element.
  const char* Input(uint64_t q, int rank, Slice slice, size_t elem_bytes) const {
    return segment->input(q, rank - local_ranks().lo) + slice.begin * elem_bytes;
  }
  // The result, starting at the slice's first element.
  char* Result(uint64_t q, Slice slice, size_t elem_bytes) const {
    return segment->result(q) + slice.begin * elem_bytes;
  }

  // Returns true if a message with `size` elements of the chunk must be sent or received. Only lane 0
  // exchanges empty messages, and only for an empty chunk (a barrier), to signal that the node has arrived.
  bool IsNeeded(const Chunk& chunk, size_t size) const {
    return size > 0 || (chunk.num_bytes == 0 && index == 0);
  }
};

}  // namespace ddprun
