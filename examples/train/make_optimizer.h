// The optimizers that --optimizer names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/train/options.h"
#include "worker_sdk/optim/optimizer.h"

namespace ddprun::train {

// REQUIRES: options passed ParseOptions.
std::unique_ptr<Optimizer> MakeOptimizer(const Options& options, std::vector<ParameterView> parameters);

}  // namespace ddprun::train
