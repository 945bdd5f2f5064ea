// A byte-level GPT: learned positions; blocks of norm, causal attention, norm and GELU MLP around a residual
// stream; a final norm; an untied head. It processes one sequence at a time: the caller loops over the batch,
// and so controls the order in which gradients are summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/train/model/buffer.h"
#include "examples/train/model/layers.h"
#include "examples/train/model/model_config.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun::train {

// T is float or double.
//   Threads: one caller at a time.
template <typename T>
class Gpt {
 public:
  // Parameters are zero until they are set by Initialize or by the caller.
  //   REQUIRES: Validate(config).ok()
  explicit Gpt(const ModelConfig& config, const Layers<T>& layers = LayersForThisCpu<T>());

  // Draws the initial parameters from `rng`. Equal generators give the same bits on every machine.
  void Initialize(CounterRng& rng);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }
  [[nodiscard]] std::span<T> parameters() { return parameters_.span(); }  // flat, laid out by tensors()
  [[nodiscard]] std::span<const T> parameters() const { return parameters_.span(); }

  // Predicts bytes 1..S, each from the bytes before it; returns scale * (sum of the S losses, in nats).
  //   Shapes:  sequence [S + 1], S = context.
  double Forward(std::span<const uint8_t> sequence, T scale);

  // Overwrites `grads` with the gradient of the last Forward result.
  //   Shapes:  grads: same layout as parameters().
  //   Order:   calls `ready(i)` once per tensor, from the last to the first, when its gradient is final.
  //   REQUIRES: one Forward of the same sequence before each call.
  void Backward(std::span<const uint8_t> sequence, std::span<T> grads,
                FunctionRef<void(size_t tensor)> ready);

 private:
  // Values of a block that the backward pass needs.
  struct BlockValues {
    Buffer<T> norm1, mean1, rstd1;  // [S,C], [S], [S]
    Buffer<T> qkv, att, mixed;      // [S,3C], [H,S,S], [S,C]
    Buffer<T> middle;               // [S,C], the residual stream after attention
    Buffer<T> norm2, mean2, rstd2;  // [S,C], [S], [S]
    Buffer<T> up, active;           // [S,4C], [S,4C]
    Buffer<T> out;                  // [S,C], the residual stream after the MLP
  };

  [[nodiscard]] const T* Parameter(size_t tensor) const {
    return parameters_.data() + tensors_[tensor].offset;
  }
  void BlockForward(int layer, const T* in /*[S,C]*/);
  // `d_stream_` holds the gradient of the block's output on entry, and the gradient of its input on return.
  void BlockBackward(int layer, const T* in /*[S,C]*/, T* grads, FunctionRef<void(size_t tensor)> ready);

  const ModelConfig config_;
  const Layers<T>& layers_;
  const std::vector<TensorSpec> tensors_;
  Buffer<T> parameters_;

  Buffer<T> embedded_;                   // [S,C]
  std::vector<BlockValues> blocks_;      // [layers]
  Buffer<T> final_, mean_, rstd_;        // [S,C], [S], [S]
  Buffer<T> logits_;                     // [S,V]; after Forward: the gradient of the logits
  Buffer<T> d_stream_, d_branch_;        // [S,C], [S,C]
  Buffer<T> d_wide_, d_active_, d_att_;  // [S,4C], [S,4C], [S,S]
};

}  // namespace ddprun::train
