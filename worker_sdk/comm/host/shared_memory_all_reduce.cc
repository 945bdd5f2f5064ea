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
  if (chunk.call.elem_bytes == sizeof(double)) {
    RunOn<double>(q, chunk);
  } else {
    RunOn<float>(q, chunk);
  }
  return OkStatus();
}

template <typename T>
void SharedMemoryAllReduce::RunOn(uint64_t q, const Chunk& chunk) {
  const Slice slice = lane_.SliceOf(chunk.num_bytes / sizeof(T), sizeof(T));
  const RankRange ranks = lane_.local_ranks();
  std::vector<const T*> inputs;
  for (int r = ranks.lo; r < ranks.hi; ++r) inputs.push_back(lane_.Input<T>(q, r, slice));
  const T divisor = chunk.call.mean ? static_cast<T>(ranks.size()) : T{1};
  tree_.Run<T>(inputs, lane_.Result<T>(q, slice), slice.size(), divisor);
}

}  // namespace ddprun
