#include "worker_sdk/optim/sgd.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace ddprun {

Sgd::Sgd(std::vector<ParameterView> parameters, const SgdOptions& options)
    : parameters_(CheckedParameters(std::move(parameters))),
      options_(options),
      velocity_(name(), "momentum",
                options.momentum != 0 ? std::span(parameters_) : std::span<const ParameterView>()) {}

void Sgd::Step(const OptimizerStep& step) {
  DDPRUN_CHECK(step.step >= 1, "step < 1");
  const double learning_rate = options_.learning_rate * step.rate_factor;
  const float rate = static_cast<float>(learning_rate);
  const float momentum = static_cast<float>(options_.momentum);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterView& p = parameters_[i];
    const float keep = static_cast<float>(p.decays ? 1 - learning_rate * options_.weight_decay : 1);
    if (options_.momentum == 0) {
      for (size_t e = 0; e < p.values.size(); ++e) p.values[e] = keep * p.values[e] - rate * p.grads[e];
      continue;
    }
    const std::span<float> v = velocity_.of(i);
    for (size_t e = 0; e < p.values.size(); ++e) {
      v[e] = momentum * v[e] + p.grads[e];
      p.values[e] = keep * p.values[e] - rate * v[e];
    }
  }
}

std::vector<StateTensor> Sgd::state() {
  std::vector<StateTensor> state;
  velocity_.AppendTo(&state);
  return state;
}

}  // namespace ddprun
