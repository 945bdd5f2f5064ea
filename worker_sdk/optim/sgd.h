// Stochastic gradient descent with momentum and decoupled weight decay.
#pragma once

#include <string_view>
#include <vector>

#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

struct SgdOptions {
  double learning_rate = 1e-2;  // lr in the formula below
  double momentum = 0.9;        // 0 <= momentum < 1; if 0, the optimizer has no state
  double weight_decay = 0;      // wd; applies only to parameters with `decays`
};

// Each Step updates all elements once:
//   v <- momentum * v + g
//   p <- p - lr * (v + wd * p)
// State: "sgd.momentum/<parameter>" (v). There is no state if momentum is 0.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<ParameterView> parameters, const SgdOptions& options);

  std::string_view name() const override { return "sgd"; }
  void Step(const OptimizerStep& step) override;
  std::vector<StateTensor> state() override;

 private:
  const std::vector<ParameterView> parameters_;
  const SgdOptions options_;
  StateBuffer velocity_;  // empty if momentum is 0
};

}  // namespace ddprun
