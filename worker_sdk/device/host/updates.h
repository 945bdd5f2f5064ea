// The arithmetic of optimizers for arrays on the host. The kernels for GPUs compute the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "ddprun/optim.h"

namespace ddprun {

// The scalars of a step of AdamW. Both bias corrections are folded into the rate and epsilon, so that the loop divides once.
template <typename T>
struct AdamWScalars {
  T rate = 0;     // of learning, with the correction of the biases
  T epsilon = 0;  // with the correction of the bias of v
  T keep = 1;     // 1 - learning rate * weight decay
  T beta1 = 0;
  T beta2 = 0;
};
// T is float or double.
//   REQUIRES: step >= 1.
template <typename T>
AdamWScalars<T> AdamWScalarsOf(const AdamWOptions& options, int64_t step);

// Updates all elements once. The update is elementwise. The only libm function that it uses is sqrt, which is correctly
// rounded, so equal inputs give equal bits on every machine.
//   Shapes: all arrays have the same size.
template <typename T>
void AdamWLoop(const AdamWScalars<T>& scalars, std::span<const T> grads, std::span<T> params, std::span<T> m,
               std::span<T> v);

struct SgdScalars {
  float rate = 0;  // of learning
  float keep = 1;  // 1 - learning rate * weight decay
  float momentum = 0;
};
// Likewise. `v` is empty if there is no momentum.
void SgdLoop(const SgdScalars& scalars, std::span<const float> grads, std::span<float> params,
             std::span<float> v);

extern template AdamWScalars<float> AdamWScalarsOf<float>(const AdamWOptions&, int64_t);
extern template AdamWScalars<double> AdamWScalarsOf<double>(const AdamWOptions&, int64_t);
extern template void AdamWLoop<float>(const AdamWScalars<float>&, std::span<const float>, std::span<float>,
                                      std::span<float>, std::span<float>);
extern template void AdamWLoop<double>(const AdamWScalars<double>&, std::span<const double>,
                                       std::span<double>, std::span<double>, std::span<double>);

}  // namespace ddprun
