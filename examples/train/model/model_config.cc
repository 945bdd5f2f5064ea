#include "examples/train/model/model_config.h"

#include <string_view>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

Status InRange(std::string_view flag, int value, int max) {
  if (value >= 1 && value <= max) return OkStatus();
  return InvalidArgumentError(StrCat(flag, "=", value, ": must be from 1 to ", max));
}

}  // namespace

Status Validate(const ModelConfig& config) {
  DDPRUN_RETURN_IF_ERROR(InRange("--layers", config.layers, 1024));
  DDPRUN_RETURN_IF_ERROR(InRange("--heads", config.heads, 65536));
  DDPRUN_RETURN_IF_ERROR(InRange("--width", config.width, 65536));
  DDPRUN_RETURN_IF_ERROR(InRange("--context", config.context, 65536));
  if (config.width % config.heads != 0) {
    return InvalidArgumentError(StrCat("--heads=", config.heads, " does not divide --width=", config.width,
                                       ": each head gets an equal part"));
  }
  return OkStatus();
}

std::vector<TensorSpec> ParameterTensors(const ModelConfig& config) {
  const int64_t C = config.width;
  std::vector<TensorSpec> tensors;
  size_t offset = 0;
  const auto add = [&](std::string name, TensorKind kind, std::vector<int64_t> shape) {
    size_t num_elems = 1;
    for (const int64_t dim : shape) num_elems *= dim;
    tensors.push_back({std::move(name), kind, std::move(shape), offset, num_elems});
    offset += num_elems;
  };

  add("token_embedding", TensorKind::kWeight, {kVocab, C});
  add("position_embedding", TensorKind::kWeight, {config.context, C});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string block = StrCat("block", layer, ".");
    add(block + "norm1.gain", TensorKind::kGain, {C});
    add(block + "norm1.bias", TensorKind::kBias, {C});
    add(block + "attention.qkv.weight", TensorKind::kWeight, {3 * C, C});
    add(block + "attention.qkv.bias", TensorKind::kBias, {3 * C});
    add(block + "attention.projection.weight", TensorKind::kProjection, {C, C});
    add(block + "attention.projection.bias", TensorKind::kBias, {C});
    add(block + "norm2.gain", TensorKind::kGain, {C});
    add(block + "norm2.bias", TensorKind::kBias, {C});
    add(block + "mlp.up.weight", TensorKind::kWeight, {4 * C, C});
    add(block + "mlp.up.bias", TensorKind::kBias, {4 * C});
    add(block + "mlp.down.weight", TensorKind::kProjection, {C, 4 * C});
    add(block + "mlp.down.bias", TensorKind::kBias, {C});
  }
  add("final_norm.gain", TensorKind::kGain, {C});
  add("final_norm.bias", TensorKind::kBias, {C});
  add("head.weight", TensorKind::kWeight, {kVocab, C});
  return tensors;
}

size_t NumParameters(const std::vector<TensorSpec>& tensors) {
  return tensors.back().offset + tensors.back().num_elems;
}

}  // namespace ddprun::train
