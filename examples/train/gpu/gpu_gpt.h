// The model of examples/train/model/model.h on a GPU, in float32. Kernels and products have the order of sums of the CPU, except
// within a product and within a row; see kernels.cu and products.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ddprun/status.h"
#include "examples/train/gpu/model_kernels.h"
#include "examples/train/gpu/products.h"
#include "examples/train/model/model_config.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun::train {

// An array in the memory of a GPU.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  static StatusOr<DeviceArray> Allocate(const std::shared_ptr<const CudaContext>& context,
                                        int64_t num_elems) {
    DeviceArray array;
    DDPRUN_ASSIGN_OR_RETURN(array.memory_,
                            DeviceMemory::Allocate(context, num_elems * static_cast<int64_t>(sizeof(T))));
    return array;
  }
  [[nodiscard]] T* data() const { return static_cast<T*>(memory_.data()); }

 private:
  DeviceMemory memory_;
};

struct GpuGptOptions {
  ModelConfig config;
  int max_batch = 1;      // sequences of a pass
  int max_sequences = 1;  // sequences of a step
};

// One step is one or several passes, each a Forward and a Backward, and one call of Losses. Forward and Backward put work into
// stream() and do not wait for the GPU.
//   Errors:     the first error of the object: those of ModelKernels, Products and the copies. The object is then of no use.
//   Threads:    one caller at a time.
//   Owns:       the parameters and everything that a pass computes, except gradients.
//   Destructor: waits for the work in stream(), at most 10 s.
class GpuGpt {
 public:
  // Parameters are undefined until the caller writes them. Allocates all memory: see Gpt.
  //   Errors: kFailedPrecondition: the program has no kernels for this GPU; kResourceExhausted: it has less memory, and the
  //           message names a remedy; others: those of CudaStatus and CublasStatus.
  //   REQUIRES: Validate(config).ok(); 1 <= max_batch <= max_sequences
  static StatusOr<std::unique_ptr<GpuGpt>> Create(std::shared_ptr<const CudaContext> context,
                                                  const CublasLibrary* cublas, const GpuGptOptions& options);
  ~GpuGpt();
  GpuGpt(const GpuGpt&) = delete;
  GpuGpt& operator=(const GpuGpt&) = delete;

  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }
  [[nodiscard]] float* parameters() const { return parameters_.data(); }  // flat, laid out by tensors()
  [[nodiscard]] CUstream stream() const { return stream_.get(); }
  [[nodiscard]] ModelKernels& kernels() const { return *kernels_; }

  // Blocks until the work that is in stream() is done. Errors: those of CudaStream::Await.
  [[nodiscard]] Status Await(TimePoint deadline, std::string_view what) const {
    return stream_.Await(deadline, what);
  }

  // As Gpt::Forward, but the losses are known later. Copies `batch` before it returns.
  //   REQUIRES: the passes of a step have at most max_sequences sequences together.
  Status Forward(std::span<const std::span<const uint8_t>> batch, float scale);
  // As Gpt::Backward. grad(i) is memory of the GPU; when `ready(i)` is called, the gradient is final once the work that is in
  // stream() then is done.
  Status Backward(FunctionRef<float*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready);

  // The losses of all sequences since the last call, in order: ends a step. Blocks until they are known, which is before the
  // Backward of the last pass is done. Valid until the next Forward.
  StatusOr<std::span<const double>> Losses();

 private:
  using Array = DeviceArray<float>;
  // As in Gpt.
  struct BlockValues {
    Array norm1, mean1, rstd1, qkv, att, mixed, middle, norm2, mean2, rstd2, up, active, out;
  };
  struct Sink {
    FunctionRef<float*(size_t tensor)> grad;
    FunctionRef<void(size_t tensor)> ready;
  };

  GpuGpt(std::shared_ptr<const CudaContext> context, const GpuGptOptions& options, CudaStream stream,
         CudaEvent losses_known);
  Status Allocate();

  [[nodiscard]] const float* Parameter(size_t tensor) const {
    return parameters_.data() + tensors_[tensor].offset;
  }
  [[nodiscard]] int64_t num_positions() const { return batch_ * S_; }
  void Keep(Status status) { first_error_.Update(std::move(status)); }

  void CopyTokens(std::span<const std::span<const uint8_t>> batch);
  void BlockForward(int layer, const float* in);
  void AttentionForward(const BlockValues& b);
  // y = x * weight^T + bias + residual; the tensor after the weight is the bias.
  void LinearForward(float* y, const float* x, size_t weight, const float* residual, int64_t inputs,
                     int64_t outputs);

  void BlockBackward(int layer, const float* in, const Sink& sink);
  void AttentionBackward(const BlockValues& b);
  // As in Gpt: the tensor before the bias is the weight, or the gain.
  void LinearBackward(size_t bias, const float* d_y, const float* x, int64_t inputs, int64_t outputs,
                      const Sink& sink);
  void WeightBackward(float* d_weight, const float* d_y, const float* x, int64_t inputs, int64_t outputs);
  void LinearBackwardInput(float* d_x, const float* d_y, size_t weight, int64_t inputs, int64_t outputs);
  void NormBackward(size_t bias, const float* x, const Array& mean, const Array& rstd, const Sink& sink);
  // Where the gradient's terms, one for each sequence, are computed: a single term is the gradient itself.
  [[nodiscard]] float* TermsOf(float* gradient, int64_t first = 0) const {
    return batch_ == 1 ? gradient : terms_.data() + first;
  }
  void SumTerms(float* gradient, const float* terms, int64_t count);

  const std::shared_ptr<const CudaContext> context_;
  const GpuGptOptions options_;
  const int64_t S_, C_, H_, D_;  // positions, width, heads, width of a head
  const std::vector<TensorSpec> tensors_;
  Status first_error_;

  const CudaStream stream_;
  std::unique_ptr<ModelKernels> kernels_;
  std::unique_ptr<Products> products_;
  Array parameters_;

  int64_t batch_ = 0;          // sequences of the last Forward
  int64_t num_sequences_ = 0;  // sequences of the step so far
  // Of all passes of a step, so that the host writes them only after Losses: then the copies of the last step are done.
  PinnedMemory pinned_inputs_, pinned_targets_;  // [max_sequences,S]
  PinnedMemory pinned_losses_;                   // [max_sequences]
  CudaEvent losses_known_;

  DeviceArray<uint8_t> inputs_, targets_;    // [N]
  Array embedded_;                           // [N,C]
  std::vector<BlockValues> blocks_;          // [layers]
  Array final_, mean_, rstd_;                // [N,C], [N], [N]
  Array logits_;                             // [N,V]; after Forward: the gradient of the logits
  DeviceArray<double> row_losses_, losses_;  // [N], [max_batch]
  Array d_stream_, d_branch_, d_wide_;       // [N,C], [N,C], [N,4C]
  Array d_att_;                              // [max_batch,H,S,S]
  Array terms_;                              // [max_batch, elements of the largest weight]
};

}  // namespace ddprun::train
