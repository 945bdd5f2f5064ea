#include "worker_sdk/optim/adamw.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/array_ops.h"
#include "worker_sdk/device/host/updates.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<const T> grads, std::span<T> params,
               std::span<T> m, std::span<T> v) {
  AdamWLoop<T>(AdamWScalarsOf<T>(options, step), grads, params, m, v);
}

template void AdamWStep<float>(const AdamWOptions&, int64_t, std::span<const float>, std::span<float>,
                               std::span<float>, std::span<float>);
template void AdamWStep<double>(const AdamWOptions&, int64_t, std::span<const double>, std::span<double>,
                                std::span<double>, std::span<double>);

namespace {

constexpr char kName[] = "adamw";

class AdamW final : public ArrayOptimizer {
 public:
  AdamW(std::vector<Parameter> parameters, const AdamWOptions& options, std::unique_ptr<ArrayOps> ops,
        std::vector<StateBuffer> state)
      : ArrayOptimizer(std::move(parameters), std::move(ops), std::move(state)), options_(options) {}

  std::string_view name() const override { return kName; }

 private:
  Status Apply(ArrayOps& ops, size_t i, const ConstTensor& gradient, const OptimizerStep& step) override {
    const DefaultFloatingPointMode mode;
    const Parameter& p = parameters()[i];
    AdamWOptions options = options_;
    options.learning_rate *= step.rate_factor;
    if (!p.decays) options.weight_decay = 0;
    return ops.AdamW(step.stream, AdamWScalarsOf<float>(options, step.step), gradient, p.value,
                     State(kMean, i), State(kSquare, i));
  }

  enum : size_t { kMean = 0, kSquare = 1 };
  const AdamWOptions options_;
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
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ArrayOps> ops, ArrayOps::Open(parameters[0].value.device), "AdamW");
  std::vector<StateBuffer> state;
  for (const char* const what : {"mean", "square"}) {
    DDPRUN_ASSIGN_OR_RETURN(StateBuffer buffer, StateBuffer::Create(*ops, kName, what, parameters));
    state.push_back(std::move(buffer));
  }
  return std::unique_ptr<Optimizer>(
      std::make_unique<AdamW>(std::move(parameters), options, std::move(ops), std::move(state)));
}

}  // namespace ddprun
