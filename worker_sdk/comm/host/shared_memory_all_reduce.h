// All-reduce over the ranks of one node.
#pragma once

#include <vector>

#include "worker_sdk/comm/host/all_reduce.h"
#include "worker_sdk/comm/host/lane.h"
#include "worker_sdk/comm/reduction_tree.h"

namespace ddprun {

// Adds the slices of all inputs, and writes the sums to all outputs that are in memory that the ranks share, to the caller's
// output, and, if there are other outputs, to the segment, from where their ranks copy them. Sends no messages.
class SharedMemoryAllReduce : public AllReduce {
 public:
  // REQUIRES: one node.
  explicit SharedMemoryAllReduce(const Lane& lane);

  void Start(uint64_t, const Chunk&) override {}
  bool Continue(uint64_t q, const Chunk& chunk) override;
  void Finish(uint64_t, const Chunk&) override {}

 private:
  const Lane lane_;
  const ReductionTree tree_;  // one leaf per rank of the node
  // Kept, so that chunks do not allocate.
  std::vector<const char*> inputs_, block_inputs_;
  std::vector<char*> outputs_;
  std::vector<char> block_;
};

}  // namespace ddprun
