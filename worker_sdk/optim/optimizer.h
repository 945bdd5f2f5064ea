// What the implementations of Optimizer share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"

namespace ddprun {

// OK if the parameters are valid and float32. `optimizer`: its name in errors, such as "AdamW".
//   Errors: kInvalidArgument: the message names the parameter.
Status CheckFloat32(std::string_view optimizer, const std::vector<Parameter>& parameters);

struct Float32Update {
  std::span<float> values;
  std::span<const float> gradient;
};

// The arguments of Optimizer::Update as arrays. Aborts the process if they do not keep Update's contract.
//   REQUIRES: CheckFloat32(optimizer.parameters()).
Float32Update Float32UpdateOf(const Optimizer& optimizer, size_t i, const ConstTensor& gradient,
                              const OptimizerStep& step);

}  // namespace ddprun
