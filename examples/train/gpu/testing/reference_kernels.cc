// The kernels of the model for the stand-in. Those that only add are the source of the kernels, compiled for the CPU; the others
// are the CPU's layers, so that the stand-in computes the bits of the CPU.
#include <cmath>
#include <type_traits>
#include <vector>

#include "examples/train/model/layers.h"
#include "worker_sdk/testing/gpu/cuda/bind_kernel.h"
#include "worker_sdk/testing/gpu/cuda/kernel.h"

// After bind_kernel.h, which defines what the kernels use.
#include "examples/train/gpu/kernels.cu"

namespace ddprun::train {
namespace {

const Layers<float>& Cpu() { return LayersForThisCpu<float>(); }

void NormForwardOfCpu(float* y, float* mean, float* rstd, const float* x, const float* gain,
                      const float* bias, int64_t N, int64_t C) {
  Cpu().NormForward(y, mean, rstd, x, gain, bias, static_cast<int>(N), static_cast<int>(C));
}

void NormBackwardInputOfCpu(float* d_x, const float* d_y, const float* x, const float* mean,
                            const float* rstd, const float* gain, int64_t N, int64_t C) {
  Scratch<float> scratch;
  std::vector<float> d_gain(C), d_bias(C);
  Cpu().NormBackward(d_x, d_gain.data(), d_bias.data(), d_y, x, mean, rstd, gain, scratch, 1,
                     static_cast<int>(N), static_cast<int>(C));
}

void NormBackwardParametersOfCpu(float* d_gains, float* d_biases, const float* d_y, const float* x,
                                 const float* mean, const float* rstd, int64_t B, int64_t S, int64_t C) {
  Scratch<float> scratch;
  std::vector<float> d_x(S * C), gain(C);
  for (int64_t b = 0; b < B; ++b) {
    Cpu().NormBackward(d_x.data(), d_gains + b * C, d_biases + b * C, d_y + b * S * C, x + b * S * C,
                       mean + b * S, rstd + b * S, gain.data(), scratch, 1, static_cast<int>(S),
                       static_cast<int>(C));
  }
}

// Above the diagonal, the layers leave other values.
void ClearAboveDiagonal(float* matrix, int64_t S) {
  for (int64_t s = 0; s < S; ++s) std::fill(matrix + s * S + s + 1, matrix + (s + 1) * S, 0.0f);
}

void CausalSoftmaxOfCpu(float* att, float scale, int64_t num_matrices, int64_t S) {
  for (int64_t i = 0; i < num_matrices; ++i) {
    Cpu().CausalSoftmax(att + i * S * S, scale, static_cast<int>(S));
    ClearAboveDiagonal(att + i * S * S, S);
  }
}

void CausalSoftmaxBackwardOfCpu(float* d_att, const float* att, float scale, int64_t num_matrices,
                                int64_t S) {
  for (int64_t i = 0; i < num_matrices; ++i) {
    Cpu().CausalSoftmaxBackward(d_att + i * S * S, att + i * S * S, scale, static_cast<int>(S));
    ClearAboveDiagonal(d_att + i * S * S, S);
  }
}

void GeluForwardOfCpu(float* y, const float* x, int64_t count) { Cpu().GeluForward(y, x, count); }

void GeluBackwardOfCpu(float* d, const float* x, int64_t count) { Cpu().GeluBackward(d, x, count); }

void CrossEntropyRowsOfCpu(double* losses, float* logits, const uint8_t* targets, float scale, int64_t N,
                           int64_t V) {
  Cpu().CrossEntropyRows(losses, logits, targets, scale, static_cast<int>(N), static_cast<int>(V));
}

// `source`: the kernel, whose parameters the reference must have.
template <typename Function>
stand_in::Kernel Reference(const char* name, Function* source, Function* reference) {
  (void)source;
  return stand_in::MakeKernel(name, reference);
}

const stand_in::AddedKernels added({
    stand_in::MakeKernel("SumTerms", SumTerms),
    stand_in::MakeKernel("AddTo", AddTo),
    stand_in::MakeKernel("AddBias", AddBias),
    stand_in::MakeKernel("BiasBackward", BiasBackward),
    stand_in::MakeKernel("EmbedForward", EmbedForward),
    stand_in::MakeKernel("EmbedTokensBackward", EmbedTokensBackward),
    stand_in::MakeKernel("SumLosses", SumLosses),
    Reference("NormForward", NormForward, NormForwardOfCpu),
    Reference("NormBackwardInput", NormBackwardInput, NormBackwardInputOfCpu),
    Reference("NormBackwardParameters", NormBackwardParameters, NormBackwardParametersOfCpu),
    Reference("CausalSoftmax", CausalSoftmax, CausalSoftmaxOfCpu),
    Reference("CausalSoftmaxBackward", CausalSoftmaxBackward, CausalSoftmaxBackwardOfCpu),
    Reference("GeluForward", GeluForward, GeluForwardOfCpu),
    Reference("GeluBackward", GeluBackward, GeluBackwardOfCpu),
    Reference("CrossEntropyRows", CrossEntropyRows, CrossEntropyRowsOfCpu),
});

}  // namespace
}  // namespace ddprun::train
