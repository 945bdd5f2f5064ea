#include "worker_sdk/device/host/updates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/check.h"
#include "worker_sdk/device/host/power.h"

namespace ddprun {

template <typename T>
AdamWScalars<T> AdamWScalarsOf(const AdamWOptions& options, int64_t step) {
  DDPRUN_CHECK(step >= 1, "step < 1");
  const double root = std::sqrt(1 - Power(options.beta2, step));
  // epsilon is at least the smallest normal number: if it were 0, an element without gradients would become 0 / 0.
  return {.rate = static_cast<T>(options.learning_rate * root / (1 - Power(options.beta1, step))),
          .epsilon = std::max(static_cast<T>(options.epsilon * root), std::numeric_limits<T>::min()),
          .keep = static_cast<T>(1 - options.learning_rate * options.weight_decay),
          .beta1 = static_cast<T>(options.beta1),
          .beta2 = static_cast<T>(options.beta2)};
}

template <typename T>
void AdamWLoop(const AdamWScalars<T>& scalars, std::span<const T> grads, std::span<T> params, std::span<T> m,
               std::span<T> v) {
  DDPRUN_CHECK(grads.size() == params.size() && m.size() == params.size() && v.size() == params.size(),
               "the spans differ in size");
  const auto [rate, epsilon, keep, beta1, beta2] = scalars;
  for (size_t i = 0; i < params.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * grads[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grads[i] * grads[i];
    params[i] = keep * params[i] - rate * m[i] / (std::sqrt(v[i]) + epsilon);
  }
}

void SgdLoop(const SgdScalars& scalars, std::span<const float> grads, std::span<float> params,
             std::span<float> v) {
  DDPRUN_CHECK(grads.size() == params.size() && (v.empty() || v.size() == params.size()),
               "the spans differ in size");
  const auto [rate, keep, momentum] = scalars;
  if (v.empty()) {
    for (size_t i = 0; i < params.size(); ++i) params[i] = keep * params[i] - rate * grads[i];
    return;
  }
  for (size_t i = 0; i < params.size(); ++i) {
    v[i] = momentum * v[i] + grads[i];
    params[i] = keep * params[i] - rate * v[i];
  }
}

template AdamWScalars<float> AdamWScalarsOf<float>(const AdamWOptions&, int64_t);
template AdamWScalars<double> AdamWScalarsOf<double>(const AdamWOptions&, int64_t);
template void AdamWLoop<float>(const AdamWScalars<float>&, std::span<const float>, std::span<float>,
                               std::span<float>, std::span<float>);
template void AdamWLoop<double>(const AdamWScalars<double>&, std::span<const double>, std::span<double>,
                                std::span<double>, std::span<double>);

}  // namespace ddprun
