#include "worker_sdk/comm/host/shared_memory_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace ddprun {
namespace {

constexpr size_t kBlockBytes = 4096;

}  // namespace

SharedMemoryAllReduce::SharedMemoryAllReduce(const Lane& lane)
    : lane_(lane), tree_(lane.local_ranks(), SingleRanks(lane.local_ranks())), block_(kBlockBytes) {
  DDPRUN_CHECK(lane.topology.num_nodes() == 1, "there are several nodes");
}

bool SharedMemoryAllReduce::Continue(uint64_t q, const Chunk& chunk) {
  const size_t size = chunk.elem_bytes();
  const Slice slice = lane_.SliceOf(chunk.num_elems(), size);
  const RankRange ranks = lane_.local_ranks();
  inputs_.clear();
  outputs_.clear();
  for (int r = ranks.lo; r < ranks.hi; ++r) inputs_.push_back(lane_.Input(q, chunk, r, slice));
  if (Lane::SkipsSegment(chunk)) {
    outputs_.push_back(Lane::Output(chunk, slice));
    bool all_shared = true;
    for (int local = 0; local < ranks.size(); ++local) {
      if (local == lane_.index) continue;
      char* shared = lane_.regions->At(lane_.segment->places(q, local).out, local);
      if (shared != nullptr) outputs_.push_back(shared + chunk.offset + slice.begin * size);
      all_shared = all_shared && shared != nullptr;
    }
    if (!all_shared) outputs_.push_back(lane_.Result(q, slice, size));
  } else {
    outputs_.push_back(lane_.Result(q, slice, size));
  }
  const int divisor = chunk.call.op == ReduceOp::kMean ? ranks.size() : 1;
  // A block at a time, so that all outputs are written while the sums are in the L1 cache. The inputs may be outputs, too,
  // so nothing is written to an output before all inputs of the block are read, except by the only step of a tree.
  const bool is_direct = inputs_.size() <= 2 || !Lane::SkipsSegment(chunk);
  block_inputs_.resize(inputs_.size());
  for (size_t begin = 0; begin < slice.size(); begin += kBlockBytes / size) {
    const size_t n = std::min(kBlockBytes / size, slice.size() - begin);
    for (size_t i = 0; i < inputs_.size(); ++i) block_inputs_[i] = inputs_[i] + begin * size;
    char* const sums = is_direct ? outputs_[0] + begin * size : block_.data();
    tree_.Run(chunk.reduction(), block_inputs_, sums, n, divisor);
    for (char* output : outputs_) {
      if (output + begin * size != sums) std::memcpy(output + begin * size, sums, n * size);
    }
  }
  return true;
}

}  // namespace ddprun
