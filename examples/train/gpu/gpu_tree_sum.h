// The sums of examples/train/model/tree_sum.h for arrays on a GPU.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "ddprun/status.h"
#include "examples/train/gpu/gpu_gpt.h"
#include "examples/train/gpu/model_kernels.h"

namespace ddprun::train {

// As TreeSum, in the stream of `kernels`. Does not block.
class GpuTreeSum {
 public:
  // Allocates the memory for sums of at most `max_terms` terms, because allocations may wait for running kernels.
  //   kernels: outlives the object.
  static StatusOr<GpuTreeSum> Create(const std::shared_ptr<const CudaContext>& context, ModelKernels* kernels,
                                     int64_t num_elems, int64_t max_terms) {
    GpuTreeSum sum(kernels);
    for (int i = std::bit_width(static_cast<uint64_t>(max_terms - 1)); i > 0; --i) {
      DDPRUN_ASSIGN_OR_RETURN(DeviceArray<float> subtree, DeviceArray<float>::Allocate(context, num_elems),
                              "the sums over the passes of --accumulate");
      sum.stack_.push_back(std::move(subtree));
    }
    return sum;
  }

  void Begin() { num_terms_ = 0; }

  // Elements first .. first + count - 1 of the next term, which is not the last one; `part` is overwritten.
  Status Add(float* part, int64_t first, int64_t count, const CudaContext& context, CUstream stream) {
    size_t waiting = std::popcount(num_terms_);
    for (int merges = std::countr_one(num_terms_); merges > 0; --merges)
      DDPRUN_RETURN_IF_ERROR(AddTo(part, first, count, --waiting));
    DDPRUN_CHECK(waiting < stack_.size(), "more terms than max_terms");
    return CopyOnDevice(context, stack_[waiting].data() + first, part, count * int64_t{sizeof(float)},
                        stream);
  }
  void EndTerm() { ++num_terms_; }

  // Replaces a part of the last term with that of the sum.
  Status Finish(float* part, int64_t first, int64_t count) const {
    for (size_t i = std::popcount(num_terms_); i-- > 0;) DDPRUN_RETURN_IF_ERROR(AddTo(part, first, count, i));
    return OkStatus();
  }

 private:
  explicit GpuTreeSum(ModelKernels* kernels) : kernels_(kernels) {}
  Status AddTo(float* sum, int64_t first, int64_t count, size_t subtree) const {
    return kernels_->AddTo(sum, stack_[subtree].data() + first, count);
  }

  ModelKernels* kernels_;
  uint64_t num_terms_ = 0;
  std::vector<DeviceArray<float>> stack_;  // the first popcount(num_terms_) are in use; the largest is first
};

}  // namespace ddprun::train
