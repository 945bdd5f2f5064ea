#include "examples/train/gpu/model_kernels.h"

namespace ddprun::train {
namespace {

constexpr int64_t kLanes = 8;  // threads of a row, see kernels.cu

}  // namespace

StatusOr<std::unique_ptr<ModelKernels>> ModelKernels::Load(std::shared_ptr<const CudaContext> context,
                                                           CUstream stream,
                                                           std::span<const unsigned char> image) {
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<const CudaImage> loaded,
                          CudaImage::Load(std::move(context), image));
  std::unique_ptr<ModelKernels> kernels(new ModelKernels(std::move(loaded), stream));
  Functions& f = kernels->functions_;
  const std::pair<CUfunction*, const char*> kFunctions[] = {
      {&f.sum_terms, "SumTerms"},
      {&f.add_to, "AddTo"},
      {&f.add_bias, "AddBias"},
      {&f.bias_backward, "BiasBackward"},
      {&f.embed_forward, "EmbedForward"},
      {&f.embed_tokens_backward, "EmbedTokensBackward"},
      {&f.norm_forward, "NormForward"},
      {&f.norm_backward_input, "NormBackwardInput"},
      {&f.norm_backward_parameters, "NormBackwardParameters"},
      {&f.causal_softmax, "CausalSoftmax"},
      {&f.causal_softmax_backward, "CausalSoftmaxBackward"},
      {&f.gelu_forward, "GeluForward"},
      {&f.gelu_backward, "GeluBackward"},
      {&f.cross_entropy_rows, "CrossEntropyRows"},
      {&f.sum_losses, "SumLosses"},
  };
  for (const auto& [function, name] : kFunctions) {
    DDPRUN_ASSIGN_OR_RETURN(*function, kernels->image_->Find(name));
  }
  return kernels;
}

Status ModelKernels::SumTerms(float* out, const float* terms, int64_t num_terms, int64_t count) {
  return image_->Launch(functions_.sum_terms, stream_, count, out, terms, num_terms, count);
}

Status ModelKernels::AddTo(float* inout, const float* addend, int64_t count) {
  return image_->Launch(functions_.add_to, stream_, count, inout, addend, count);
}

Status ModelKernels::AddBias(float* y, const float* bias, const float* residual, int64_t N, int64_t O) {
  return image_->Launch(functions_.add_bias, stream_, N * O, y, bias, residual, N, O);
}

Status ModelKernels::BiasBackward(float* sums, const float* d_y, int64_t B, int64_t S, int64_t O) {
  return image_->Launch(functions_.bias_backward, stream_, B * O, sums, d_y, B, S, O);
}

Status ModelKernels::EmbedForward(float* x, const uint8_t* tokens, const float* token_table,
                                  const float* position_table, int64_t N, int64_t S, int64_t C) {
  return image_->Launch(functions_.embed_forward, stream_, N * C, x, tokens, token_table, position_table, N,
                        S, C);
}

Status ModelKernels::EmbedTokensBackward(float* d_table, const float* d_x, const uint8_t* tokens, int64_t B,
                                         int64_t S, int64_t C, int64_t V) {
  return image_->Launch(functions_.embed_tokens_backward, stream_, V * C, d_table, d_x, tokens, B, S, C, V);
}

Status ModelKernels::NormForward(float* y, float* mean, float* rstd, const float* x, const float* gain,
                                 const float* bias, int64_t N, int64_t C) {
  return image_->Launch(functions_.norm_forward, stream_, N * kLanes, y, mean, rstd, x, gain, bias, N, C);
}

Status ModelKernels::NormBackwardInput(float* d_x, const float* d_y, const float* x, const float* mean,
                                       const float* rstd, const float* gain, int64_t N, int64_t C) {
  return image_->Launch(functions_.norm_backward_input, stream_, N * kLanes, d_x, d_y, x, mean, rstd, gain, N,
                        C);
}

Status ModelKernels::NormBackwardParameters(float* d_gains, float* d_biases, const float* d_y, const float* x,
                                            const float* mean, const float* rstd, int64_t B, int64_t S,
                                            int64_t C) {
  return image_->Launch(functions_.norm_backward_parameters, stream_, B * C, d_gains, d_biases, d_y, x, mean,
                        rstd, B, S, C);
}

Status ModelKernels::CausalSoftmax(float* att, float scale, int64_t num_matrices, int64_t S) {
  return image_->Launch(functions_.causal_softmax, stream_, num_matrices * S * kLanes, att, scale,
                        num_matrices, S);
}

Status ModelKernels::CausalSoftmaxBackward(float* d_att, const float* att, float scale, int64_t num_matrices,
                                           int64_t S) {
  return image_->Launch(functions_.causal_softmax_backward, stream_, num_matrices * S * kLanes, d_att, att,
                        scale, num_matrices, S);
}

Status ModelKernels::GeluForward(float* y, const float* x, int64_t count) {
  return image_->Launch(functions_.gelu_forward, stream_, count, y, x, count);
}

Status ModelKernels::GeluBackward(float* d, const float* x, int64_t count) {
  return image_->Launch(functions_.gelu_backward, stream_, count, d, x, count);
}

Status ModelKernels::CrossEntropyRows(double* losses, float* logits, const uint8_t* targets, float scale,
                                      int64_t N, int64_t V) {
  return image_->Launch(functions_.cross_entropy_rows, stream_, N * kLanes, losses, logits, targets, scale, N,
                        V);
}

Status ModelKernels::SumLosses(double* out, const double* losses, float scale, int64_t B, int64_t S) {
  return image_->Launch(functions_.sum_losses, stream_, B, out, losses, scale, B, S);
}

}  // namespace ddprun::train
