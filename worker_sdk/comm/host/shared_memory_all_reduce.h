// All-reduce over the ranks of one node.
#pragma once

#include "ddprun/status.h"
#include "worker_sdk/comm/host/all_reduce.h"
#include "worker_sdk/comm/host/lane.h"
#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {

// Adds the slices of all inputs in shared memory. Sends no messages and never blocks.
class SharedMemoryAllReduce : public AllReduce {
 public:
  // REQUIRES: one node.
  explicit SharedMemoryAllReduce(const Lane& lane);

  Status Run(uint64_t q, const Chunk& chunk, CatchUp catch_up) override;

 private:
  const Lane lane_;
  const ReductionTree tree_;  // one leaf per rank of the node
};

}  // namespace ddprun
