// The parameters of the model and their optimizer, as the SDK sees them.
#pragma once

#include <memory>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/parameters.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "examples/train/model/model_config.h"
#include "examples/train/options.h"

namespace ddprun::train {

// Views of the parameters at `values`, flat, without memory for gradients: DataParallel provides it.
std::vector<Parameter> ParametersAt(float* values, const Device& device,
                                    const std::vector<TensorSpec>& tensors);

// The optimizer that --optimizer names.
//   REQUIRES: `options` are from ParseOptions.
//   Errors:   those of MakeAdamW.
StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Options& options, std::vector<Parameter> parameters);

}  // namespace ddprun::train
