#include "worker_sdk/comm/host/shared_memory_all_reduce.h"

#include <vector>

#include "base/check.h"
#include "ddprun/status.h"

namespace ddprun {

SharedMemoryAllReduce::SharedMemoryAllReduce(const Lane& lane)
    : lane_(lane), tree_(lane.local_ranks(), SingleRanks(lane.local_ranks())) {
  DDPRUN_CHECK(lane.topology.num_nodes() == 1, "there are several nodes");
}

Status SharedMemoryAllReduce::Run(uint64_t q, const Chunk& chunk, CatchUp) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const RankRange ranks = lane_.local_ranks();
  std::vector<const char*> inputs;
  for (int r = ranks.lo; r < ranks.hi; ++r) {
    const bool own = r == ranks.lo + lane_.index && chunk.call.kind == internal::OpKind::kAllReduce;
    inputs.push_back(own ? chunk.in + chunk.offset + slice.begin * size : lane_.Input(q, r, slice, size));
  }
  const int divisor = chunk.call.op == ReduceOp::kMean ? ranks.size() : 1;
  tree_.Run(chunk.reduction(), inputs, lane_.Result(q, slice, size), slice.size(), divisor);
  return OkStatus();
}

}  // namespace ddprun
