#include "examples/train/make_optimizer.h"

#include <utility>

#include "worker_sdk/optim/adamw.h"
#include "worker_sdk/optim/sgd.h"

namespace ddprun::train {
namespace {

constexpr double kBeta2 = 0.99;  // small batches of small models: a shorter memory than Adam's usual one
constexpr double kMomentum = 0.9;

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const Options& options, std::vector<ParameterView> parameters) {
  if (options.optimizer == "sgd") {
    return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.learning_rate = options.learning_rate,
                                                                   .momentum = kMomentum,
                                                                   .weight_decay = options.weight_decay});
  }
  return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.learning_rate = options.learning_rate,
                                                                     .beta2 = kBeta2,
                                                                     .weight_decay = options.weight_decay});
}

}  // namespace ddprun::train
