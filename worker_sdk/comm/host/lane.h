// One lane of a node: its position in the topology, and the memory and connections that it uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/regions.h"
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
  const Regions* regions = nullptr;

  RankRange local_ranks() const { return topology.nodes[node]; }
  bool exists() const { return index < topology.num_lanes(); }

  // This lane's slice of `n` elements of `elem_bytes` bytes each.
  Slice SliceOf(size_t n, size_t elem_bytes) const {
    return CutSlice(n, kCacheLine / elem_bytes, topology.num_lanes(), index);
  }
  // True if the lane's slice of the chunk does not pass through the segment: the lane reads its own input from the caller's
  // memory, and writes the slice of the result to the caller's output.
  static bool SkipsSegment(const Chunk& chunk) { return chunk.call.kind == internal::OpKind::kAllReduce; }
  // The input of `rank`, which is on this node, starting at the slice's first element: in a region that the ranks share,
  // or in the segment.
  const char* Input(uint64_t q, const Chunk& chunk, int rank, Slice slice) const {
    const size_t begin = slice.begin * chunk.elem_bytes();
    const int local = rank - local_ranks().lo;
    if (SkipsSegment(chunk)) {
      if (local == index) return chunk.in + chunk.offset + begin;
      const char* shared = regions->At(segment->places(q, local).in, local);
      if (shared != nullptr) return shared + chunk.offset + begin;
    }
    return segment->input(q, local) + begin;
  }
  // The caller's output, starting at the slice's first element.
  //   REQUIRES: SkipsSegment(chunk).
  static char* Output(const Chunk& chunk, Slice slice) {
    return chunk.out + chunk.offset + slice.begin * chunk.elem_bytes();
  }
  // The result, starting at the slice's first element.
  char* Result(uint64_t q, Slice slice, size_t elem_bytes) const {
    return segment->result(q) + slice.begin * elem_bytes;
  }
  // Copies the slice of the result from the segment to the caller's output.
  //   REQUIRES: SkipsSegment(chunk).
  void CopyToOutput(uint64_t q, const Chunk& chunk) const {
    const Slice slice = SliceOf(chunk.num_elems(), chunk.elem_bytes());
    const size_t num_bytes = slice.size() * chunk.elem_bytes();
    if (num_bytes > 0) std::memcpy(Output(chunk, slice), Result(q, slice, chunk.elem_bytes()), num_bytes);
  }

  // Returns true if a message with `size` elements of the chunk must be sent or received. Only lane 0
  // exchanges empty messages, and only for an empty chunk (a barrier), to signal that the node has arrived.
  bool IsNeeded(const Chunk& chunk, size_t size) const {
    return size > 0 || (chunk.num_bytes == 0 && index == 0);
  }
};

}  // namespace ddprun
