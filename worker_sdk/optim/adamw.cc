#include "worker_sdk/optim/adamw.h"

#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"

namespace ddprun {
namespace {

// Computes base^exponent by repeated squaring. std::pow is not used, because the last bit of its result may
// differ between machines.
double Power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

}  // namespace

template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<const T> grads, std::span<T> params,
               std::span<T> m, std::span<T> v) {
  DDPRUN_CHECK(step >= 1, "step < 1");
  DDPRUN_CHECK(grads.size() == params.size() && m.size() == params.size() && v.size() == params.size(),
               "the spans differ in size");
  // Both bias corrections are folded into the rate and epsilon, so that the loop divides once.
  const double root = std::sqrt(1 - Power(options.beta2, step));
  const T rate = static_cast<T>(options.learning_rate * root / (1 - Power(options.beta1, step)));
  const T epsilon = static_cast<T>(options.epsilon * root);
  const T keep = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const T beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  for (size_t i = 0; i < params.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * grads[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grads[i] * grads[i];
    params[i] = keep * params[i] - rate * m[i] / (std::sqrt(v[i]) + epsilon);
  }
}

template void AdamWStep<float>(const AdamWOptions&, int64_t, std::span<const float>, std::span<float>,
                               std::span<float>, std::span<float>);
template void AdamWStep<double>(const AdamWOptions&, int64_t, std::span<const double>, std::span<double>,
                                std::span<double>, std::span<double>);

AdamW::AdamW(std::vector<ParameterView> parameters, const AdamWOptions& options)
    : parameters_(CheckedParameters(std::move(parameters))),
      options_(options),
      mean_(name(), "mean", parameters_),
      square_(name(), "square", parameters_) {}

void AdamW::Step(const OptimizerStep& step) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterView& p = parameters_[i];
    AdamWOptions options = options_;
    options.learning_rate *= step.rate_factor;
    if (!p.decays) options.weight_decay = 0;
    AdamWStep<float>(options, step.step, p.grads, p.values, mean_.of(i), square_.of(i));
  }
}

std::vector<StateTensor> AdamW::state() {
  std::vector<StateTensor> state;
  mean_.AppendTo(&state);
  square_.AppendTo(&state);
  return state;
}

}  // namespace ddprun
