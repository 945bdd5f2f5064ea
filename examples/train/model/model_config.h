// The shape of the model and the resulting list of parameter tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/status.h"

namespace ddprun::train {

// The model reads and predicts bytes.
inline constexpr int kVocab = 256;

// Changing a field changes the model. A snapshot contains all fields and is loaded only if all of them match.
struct ModelConfig {
  int layers = 2;    // transformer blocks, 1..1024
  int heads = 4;     // attention heads per block; must divide width
  int width = 64;    // elements of the residual stream, 1..65536
  int context = 64;  // bytes of context per prediction, 1..65536

  bool operator==(const ModelConfig&) const = default;
};

//   Errors: kInvalidArgument naming the flag, its value and what is allowed.
Status Validate(const ModelConfig& config);

// Initialization of a tensor, and whether weight decay applies.
enum class TensorKind {
  kWeight,      // normal, standard deviation 0.02; decayed
  kProjection,  // weight that adds to the residual stream; deviation 0.02 / sqrt(2 * layers); decayed
  kGain,        // ones; not decayed
  kBias,        // zeros; not decayed
};

struct TensorSpec {
  std::string name;  // "block1.attention.qkv.weight"
  TensorKind kind;
  std::vector<int64_t> shape;
  size_t offset;     // index of the first element in the flat array of all parameters
  size_t num_elems;  // product of the shape
};

// Returns all parameter tensors in the order in which the forward pass uses them. They are contiguous in the
// flat array. The backward pass completes their gradients in the reverse order.
std::vector<TensorSpec> ParameterTensors(const ModelConfig& config);

// Size of the flat array in elements.
size_t NumParameters(const std::vector<TensorSpec>& tensors);

// Index of a tensor in ParameterTensors().
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
