#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/optim.h"
#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<Parameter> parameters, const SgdOptions& options)
      : Optimizer(std::move(parameters)),
        options_(options),
        velocity_(name(), "momentum",
                  options.momentum != 0 ? std::span(this->parameters()) : std::span<const Parameter>()) {}

  std::string_view name() const override { return "sgd"; }

  void Update(size_t i, ConstTensor gradient, const OptimizerStep& step) override {
    const DefaultFloatingPointMode mode;
    const auto [values, grads] = Float32UpdateOf(*this, i, gradient, step);
    const double learning_rate = options_.learning_rate * step.rate_factor;
    const float rate = static_cast<float>(learning_rate);
    const float momentum = static_cast<float>(options_.momentum);
    const float keep =
        static_cast<float>(parameters()[i].decays ? 1 - learning_rate * options_.weight_decay : 1);
    if (options_.momentum == 0) {
      for (size_t e = 0; e < values.size(); ++e) values[e] = keep * values[e] - rate * grads[e];
      return;
    }
    const std::span<float> v = velocity_.of(i);
    for (size_t e = 0; e < values.size(); ++e) {
      v[e] = momentum * v[e] + grads[e];
      values[e] = keep * values[e] - rate * v[e];
    }
  }

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> state;
    velocity_.AppendTo(&state);
    return state;
  }

 private:
  const SgdOptions options_;
  StateBuffer velocity_;  // empty if momentum is 0
};

std::string FaultOf(const SgdOptions& o) {
  if (!(o.learning_rate >= 0 && std::isfinite(o.learning_rate)))
    return StrCat("learning_rate is ", o.learning_rate);
  if (!(o.momentum >= 0 && o.momentum < 1)) return StrCat("momentum is ", o.momentum);
  if (!(o.weight_decay >= 0 && std::isfinite(o.weight_decay)))
    return StrCat("weight_decay is ", o.weight_decay);
  return "";
}

}  // namespace

StatusOr<std::unique_ptr<Optimizer>> MakeSgd(std::vector<Parameter> parameters, const SgdOptions& options) {
  if (const std::string fault = FaultOf(options); !fault.empty())
    return InvalidArgumentError(StrCat("SGD: ", fault));
  DDPRUN_RETURN_IF_ERROR(CheckFloat32("SGD", parameters));
  return std::unique_ptr<Optimizer>(std::make_unique<Sgd>(std::move(parameters), options));
}

}  // namespace ddprun
