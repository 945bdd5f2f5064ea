#include "examples/train/make_optimizer.h"

#include <utility>

namespace ddprun::train {
namespace {

constexpr double kBeta2 = 0.99;  // lower than Adam's usual value, for small batches and small models
constexpr double kMomentum = 0.9;

}  // namespace

std::vector<Parameter> ParametersAt(float* values, const Device& device,
                                    const std::vector<TensorSpec>& tensors) {
  std::vector<Parameter> parameters;
  for (const TensorSpec& tensor : tensors) {
    parameters.push_back(
        {.name = tensor.name,
         .shape = tensor.shape,
         .value = {values + tensor.offset, static_cast<int64_t>(tensor.num_elems), DType::kFloat32, device},
         .gradient = {},
         .decays = tensor.kind == TensorKind::kWeight || tensor.kind == TensorKind::kProjection});
  }
  return parameters;
}

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Options& options,
                                                   std::vector<Parameter> parameters) {
  if (options.optimizer == "sgd") {
    return MakeSgd(std::move(parameters), {.learning_rate = options.learning_rate,
                                           .momentum = kMomentum,
                                           .weight_decay = options.weight_decay});
  }
  return MakeAdamW(
      std::move(parameters),
      {.learning_rate = options.learning_rate, .beta2 = kBeta2, .weight_decay = options.weight_decay});
}

}  // namespace ddprun::train
