#include "worker_sdk/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/power.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<const T> grads, std::span<T> params,
               std::span<T> m, std::span<T> v) {
  DDPRUN_CHECK(step >= 1, "step < 1");
  DDPRUN_CHECK(grads.size() == params.size() && m.size() == params.size() && v.size() == params.size(),
               "the spans differ in size");
  // Both bias corrections are folded into the rate and epsilon, so that the loop divides once.
  const double root = std::sqrt(1 - Power(options.beta2, step));
  const T rate = static_cast<T>(options.learning_rate * root / (1 - Power(options.beta1, step)));
  // At least the smallest normal number: if it were 0, an element without gradients would become 0 / 0.
  const T epsilon = std::max(static_cast<T>(options.epsilon * root), std::numeric_limits<T>::min());
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

namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Parameter> parameters, const AdamWOptions& options)
      : Optimizer(std::move(parameters)),
        options_(options),
        mean_(name(), "mean", this->parameters()),
        square_(name(), "square", this->parameters()) {}

  std::string_view name() const override { return "adamw"; }

  void Update(size_t i, ConstTensor gradient, const OptimizerStep& step) override {
    const DefaultFloatingPointMode mode;
    const auto [values, grads] = Float32UpdateOf(*this, i, gradient, step);
    AdamWOptions options = options_;
    options.learning_rate *= step.rate_factor;
    if (!parameters()[i].decays) options.weight_decay = 0;
    AdamWStep<float>(options, step.step, grads, values, mean_.of(i), square_.of(i));
  }

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> state;
    mean_.AppendTo(&state);
    square_.AppendTo(&state);
    return state;
  }

 private:
  const AdamWOptions options_;
  StateBuffer mean_;
  StateBuffer square_;
};

// A rate that rounds to 1 would never add a gradient to its average.
bool IsDecayRate(double beta) { return beta >= 0 && static_cast<float>(beta) < 1; }

std::string FaultOf(const AdamWOptions& o) {
  if (!(o.learning_rate >= 0 && std::isfinite(o.learning_rate)))
    return StrCat("learning_rate is ", o.learning_rate);
  if (!IsDecayRate(o.beta1)) return StrCat("beta1 is ", o.beta1);
  if (!IsDecayRate(o.beta2)) return StrCat("beta2 is ", o.beta2);
  using Float32 = std::numeric_limits<float>;
  if (!(o.epsilon >= Float32::min() && o.epsilon <= Float32::max())) return StrCat("epsilon is ", o.epsilon);
  if (!(o.weight_decay >= 0 && std::isfinite(o.weight_decay)))
    return StrCat("weight_decay is ", o.weight_decay);
  return "";
}

}  // namespace

StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(std::vector<Parameter> parameters,
                                               const AdamWOptions& options) {
  if (const std::string fault = FaultOf(options); !fault.empty())
    return InvalidArgumentError(StrCat("AdamW: ", fault));
  DDPRUN_RETURN_IF_ERROR(CheckFloat32("AdamW", parameters));
  return std::unique_ptr<Optimizer>(std::make_unique<AdamW>(std::move(parameters), options));
}

}  // namespace ddprun
