// The interface that every all-reduce algorithm of the host backend implements.
#pragma once

#include <cstdint>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/tcp_mesh.h"

namespace ddprun {

// One lane's part of an algorithm. For each chunk, all lanes of all nodes run the same algorithm; the next
// chunk may use another one.
//   Result:  the reduction along the tree in reduction_tree.h; bit-equal for all algorithms.
//   Threads: one caller.
class AllReduce {
 public:
  virtual ~AllReduce() = default;

  // Reduces this lane's slice of chunk `q` over the inputs of all ranks, and writes it to the result in the
  // segment.
  //   Order:    the caller has awaited kFilled for q and kDrained for q - 2, and arrives at kCombined after
  //             Run returns. Run calls `catch_up` before it blocks on other nodes.
  //   Errors:   Segment::EndOf(q); the slice of the result is then undefined.
  //   REQUIRES: chunk.call reduces, or is a barrier, which has 0 bytes: on lane 0, Run then returns once lane
  //             0 of every node has called Run.
  virtual Status Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) = 0;
};

}  // namespace ddprun
