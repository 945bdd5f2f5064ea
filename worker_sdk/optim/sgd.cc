#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/optim.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/array_ops.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {
namespace {

constexpr char kName[] = "sgd";

class Sgd final : public ArrayOptimizer {
 public:
  Sgd(std::vector<Parameter> parameters, const SgdOptions& options, std::unique_ptr<ArrayOps> ops,
      std::vector<StateBuffer> state)
      : ArrayOptimizer(std::move(parameters), std::move(ops), std::move(state)), options_(options) {}

  std::string_view name() const override { return kName; }

 private:
  Status Apply(ArrayOps& ops, size_t i, const ConstTensor& gradient, const OptimizerStep& step) override {
    const Parameter& p = parameters()[i];
    const double learning_rate = options_.learning_rate * step.rate_factor;
    const SgdScalars scalars{
        .rate = static_cast<float>(learning_rate),
        .keep = static_cast<float>(p.decays ? 1 - learning_rate * options_.weight_decay : 1),
        .momentum = static_cast<float>(options_.momentum)};
    return ops.Sgd(step.stream, scalars, gradient, p.value, options_.momentum != 0 ? State(0, i) : nullptr);
  }

  const SgdOptions options_;
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
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ArrayOps> ops, ArrayOps::Open(parameters[0].value.device), "SGD");
  std::vector<StateBuffer> state;
  if (options.momentum != 0) {
    DDPRUN_ASSIGN_OR_RETURN(StateBuffer velocity, StateBuffer::Create(*ops, kName, "momentum", parameters));
    state.push_back(std::move(velocity));
  }
  return std::unique_ptr<Optimizer>(
      std::make_unique<Sgd>(std::move(parameters), options, std::move(ops), std::move(state)));
}

}  // namespace ddprun
