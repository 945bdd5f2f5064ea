// AdamW: Adam with bias correction and decoupled weight decay.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

struct AdamWOptions {
  double learning_rate = 1e-3;  // lr in the formula below
  double beta1 = 0.9;           // decay rate of the mean; 0 <= beta1 < 1
  double beta2 = 0.999;         // decay rate of the square; 0 <= beta2 < 1
  double epsilon = 1e-8;        // > 0; limits the step for parameters with small gradients
  double weight_decay = 0;      // wd; usually not applied to gains and biases (see ParameterView::decays)
};

// Updates all elements once. With t = `step`, counted from 1:
//   m <- beta1 * m + (1 - beta1) * g
//   v <- beta2 * v + (1 - beta2) * g^2
//   p <- p - lr * ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * p)
// The update is elementwise. The only libm function that it uses is sqrt, which is correctly rounded, so
// equal inputs give equal bits on every machine. T is float or double.
//   REQUIRES: step >= 1; all four spans have the same size; m and v are zero before the first step.
//   Source:   Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2.
template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<const T> grads, std::span<T> params,
               std::span<T> m, std::span<T> v);

extern template void AdamWStep<float>(const AdamWOptions&, int64_t, std::span<const float>, std::span<float>,
                                      std::span<float>, std::span<float>);
extern template void AdamWStep<double>(const AdamWOptions&, int64_t, std::span<const double>,
                                       std::span<double>, std::span<double>, std::span<double>);

// Applies AdamWStep to all parameters, in float32.
// State: "adamw.mean/<parameter>" (m) for all parameters, then "adamw.square/<parameter>" (v).
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<ParameterView> parameters, const AdamWOptions& options);

  std::string_view name() const override { return "adamw"; }
  void Step(const OptimizerStep& step) override;
  std::vector<StateTensor> state() override;

 private:
  const std::vector<ParameterView> parameters_;
  const AdamWOptions options_;
  StateBuffer mean_;
  StateBuffer square_;
};

}  // namespace ddprun
