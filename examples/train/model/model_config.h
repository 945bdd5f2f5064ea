// The shape of the model, and the list of its parameter tensors that follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::train {

// The model reads and predicts bytes.
inline constexpr int kVocab = 256;

// Changing a field changes the model: a snapshot holds them and is loaded only where all agree.
struct ModelConfig {
  int layers = 2;    // transformer blocks, 1..1024
  int heads = 4;     // attention heads a block, a divisor of width
  int width = 64;    // elements of the residual stream, 1..65536
  int context = 64;  // bytes that a prediction may look at, 1..65536

  bool operator==(const ModelConfig&) const = default;
};

// kInvalidArgument naming the flag, its value and what would be right.
absl::Status Validate(const ModelConfig& config);

// How a tensor starts, and whether weight decay pulls at it.
enum class TensorKind {
  kWeight,      // normal, standard deviation 0.02; decayed
  kProjection,  // kWeight that writes into the residual stream: smaller by sqrt(2 * layers); decayed
  kGain,        // ones; not decayed
  kBias,        // zeros; not decayed
};

struct TensorSpec {
  std::string name;  // "block1.attention.qkv.weight"
  TensorKind kind;
  std::vector<int64_t> shape;
  size_t offset;     // of the first element in the flat array of all parameters
  size_t num_elems;  // product of the shape
};

// All parameters in the order in which the forward pass meets them. The tensors follow each other in the flat
// array without gaps; the backward pass finishes their gradients in exactly the reverse order.
std::vector<TensorSpec> ParameterTensors(const ModelConfig& config);

// Elements of the flat array.
size_t NumParameters(const std::vector<TensorSpec>& tensors);

// Position of a tensor in the list above.
struct TensorIndex {
  static constexpr size_t kPerBlock = 12;
  enum Block : size_t {
    kNorm1Gain,      // [C]
    kNorm1Bias,      // [C]
    kQkvWeight,      // [3C, C]
    kQkvBias,        // [3C]
    kAttProjWeight,  // [C, C]
    kAttProjBias,    // [C]
    kNorm2Gain,      // [C]
    kNorm2Bias,      // [C]
    kUpWeight,       // [4C, C]
    kUpBias,         // [4C]
    kDownWeight,     // [C, 4C]
    kDownBias,       // [C]
  };
  static constexpr size_t kTokenEmbedding = 0;     // [V, C]
  static constexpr size_t kPositionEmbedding = 1;  // [S, C]
  static constexpr size_t InBlock(int layer, Block which) { return 2 + kPerBlock * layer + which; }
  static constexpr size_t FinalGain(int layers) { return 2 + kPerBlock * layers; }  // [C]
  static constexpr size_t FinalBias(int layers) { return FinalGain(layers) + 1; }   // [C]
  static constexpr size_t Head(int layers) { return FinalGain(layers) + 2; }        // [V, C]
};

}  // namespace ddprun::train
