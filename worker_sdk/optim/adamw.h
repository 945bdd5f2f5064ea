// The arithmetic of AdamW.
#pragma once

#include <cstdint>
#include <span>

#include "ddprun/optim.h"

namespace ddprun {

// Updates all elements once, by the formula at AdamWOptions. `step` counts from 1. The update is elementwise. The only
// libm function that it uses is sqrt, which is correctly rounded, so equal inputs give equal bits on every machine. T is
// float or double.
//   REQUIRES: step >= 1; all four spans have the same size; m and v are zero before the first step.
template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<const T> grads, std::span<T> params,
               std::span<T> m, std::span<T> v);

extern template void AdamWStep<float>(const AdamWOptions&, int64_t, std::span<const float>, std::span<float>,
                                      std::span<float>, std::span<float>);
extern template void AdamWStep<double>(const AdamWOptions&, int64_t, std::span<const double>,
                                       std::span<double>, std::span<double>, std::span<double>);

}  // namespace ddprun
