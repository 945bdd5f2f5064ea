// The interface that every all-reduce algorithm of the host backend implements.
#pragma once

#include <cstdint>

#include "worker_sdk/comm/host/chunk.h"

namespace ddprun {

// One lane's part of an algorithm. For each chunk, all lanes of all nodes run the same algorithm; the next
// chunk may use another one.
//   Result:  the reduction along the tree in reduction_tree.h; bit-equal for all algorithms.
//   Threads: one caller.
class AllReduce {
 public:
  virtual ~AllReduce() = default;

  // Starts to reduce this lane's slice of chunk `q` over the inputs of all ranks. Posts messages to other nodes; does
  // not block.
  //   Order:    the caller has awaited kFilled for q and kDrained for q - n (segment.h). Chunks are started in order; the
  //             next chunks may start before q is complete.
  //   REQUIRES: chunk.call reduces, or is a barrier, which has 0 bytes.
  virtual void Start(uint64_t q, const Chunk& chunk) = 0;
  // Continues after all messages that were to be received for `q` have arrived. Returns true if the slice of the result
  // is written to the segment, and false if further messages were posted. The messages that this lane sends may
  // still be in flight: the inputs and the result must not change before.
  //   REQUIRES: Start(q) was called, and Continue(q) has not returned true.
  virtual bool Continue(uint64_t q, const Chunk& chunk) = 0;
  // Writes the slice of the result to the caller's output.
  //   REQUIRES: Lane::SkipsSegment(chunk), Continue(q) has returned true, and no message of `q` is in flight.
  virtual void Finish(uint64_t q, const Chunk& chunk) = 0;
};

}  // namespace ddprun
