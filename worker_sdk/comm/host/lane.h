// One lane of a node: its place in the topology, and the memory and connections it works on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// A view: everything that it refers to outlives it. A local rank beyond the number of lanes has one, too, but
// combines nothing.
struct Lane {
  static constexpr size_t kCacheLine = 64;  // slices begin at multiples of this

  const Topology& topology;
  int node = 0;
  int index = 0;  // the local rank
  Segment* segment = nullptr;
  TcpMesh* mesh = nullptr;  // null with one node

  RankRange local_ranks() const { return topology.nodes[node]; }
  bool exists() const { return index < topology.num_lanes(); }

  // This lane's part of `n` elements of `elem_bytes`.
  Slice SliceOf(size_t n, size_t elem_bytes) const {
    return CutSlice(n, kCacheLine / elem_bytes, topology.num_lanes(), index);
  }
  // The input of `rank`, a rank of this node, and the result, both from the slice's first element on.
  template <typename T>
  const T* Input(uint64_t q, int rank, Slice slice) const {
    return reinterpret_cast<const T*>(segment->input(q, rank - local_ranks().lo)) + slice.begin;
  }
  template <typename T>
  T* Result(uint64_t q, Slice slice) const {
    return reinterpret_cast<T*>(segment->result(q)) + slice.begin;
  }

  // Whether a message with `size` elements of the chunk is sent. Empty messages are sent only by lane 0 for
  // an empty chunk (a barrier), where they signal that the node has arrived.
  bool IsNeeded(const Chunk& chunk, size_t size) const {
    return size > 0 || (chunk.num_bytes == 0 && index == 0);
  }
};

}  // namespace ddprun
