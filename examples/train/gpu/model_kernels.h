// Launches the kernels of kernels.cu, which says what they compute.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ddprun/status.h"
#include "examples/train/gpu/kernels.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/image.h"

namespace ddprun::train {

// The kernels of the model for one stream. Each function puts one kernel into the stream, and does not block.
//   Shapes:   those of the kernels; all dimensions are >= 1. Pointers are memory of the device, which is used until the stream
//             has done the work.
//   REQUIRES: the stream belongs to the context, and outlives this object.
//   Errors:   those of CudaImage::Launch.
//   Threads:  one caller at a time.
class ModelKernels {
 public:
  // Loads all kernels. Errors: those of CudaImage.
  static StatusOr<std::unique_ptr<ModelKernels>> Load(
      std::shared_ptr<const CudaContext> context, CUstream stream,
      std::span<const unsigned char> image = ModelKernelsImage());

  Status SumTerms(float* out, const float* terms, int64_t num_terms, int64_t count);
  Status AddTo(float* inout, const float* addend, int64_t count);
  // `residual` may be null.
  Status AddBias(float* y, const float* bias, const float* residual, int64_t N, int64_t O);
  Status BiasBackward(float* sums, const float* d_y, int64_t B, int64_t S, int64_t O);
  Status EmbedForward(float* x, const uint8_t* tokens, const float* token_table, const float* position_table,
                      int64_t N, int64_t S, int64_t C);
  Status EmbedTokensBackward(float* d_table, const float* d_x, const uint8_t* tokens, int64_t B, int64_t S,
                             int64_t C, int64_t V);
  Status NormForward(float* y, float* mean, float* rstd, const float* x, const float* gain, const float* bias,
                     int64_t N, int64_t C);
  Status NormBackwardInput(float* d_x, const float* d_y, const float* x, const float* mean, const float* rstd,
                           const float* gain, int64_t N, int64_t C);
  Status NormBackwardParameters(float* d_gains, float* d_biases, const float* d_y, const float* x,
                                const float* mean, const float* rstd, int64_t B, int64_t S, int64_t C);
  Status CausalSoftmax(float* att, float scale, int64_t num_matrices, int64_t S);
  Status CausalSoftmaxBackward(float* d_att, const float* att, float scale, int64_t num_matrices, int64_t S);
  Status GeluForward(float* y, const float* x, int64_t count);
  Status GeluBackward(float* d, const float* x, int64_t count);
  Status CrossEntropyRows(double* losses, float* logits, const uint8_t* targets, float scale, int64_t N,
                          int64_t V);
  Status SumLosses(double* out, const double* losses, float scale, int64_t B, int64_t S);

 private:
  struct Functions {
    CUfunction sum_terms, add_to, add_bias, bias_backward, embed_forward, embed_tokens_backward;
    CUfunction norm_forward, norm_backward_input, norm_backward_parameters;
    CUfunction causal_softmax, causal_softmax_backward, gelu_forward, gelu_backward;
    CUfunction cross_entropy_rows, sum_losses;
  };

  ModelKernels(std::unique_ptr<const CudaImage> image, CUstream stream)
      : image_(std::move(image)), stream_(stream) {}

  const std::unique_ptr<const CudaImage> image_;
  const CUstream stream_;
  Functions functions_ = {};
};

}  // namespace ddprun::train
