// A byte-level GPT: learned positions; blocks of norm, causal attention, norm and GELU MLP around a residual
// stream; a final norm; an untied head. It processes a batch layer by layer.
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

// Draws the initial parameters of a model from `rng`: a flat array, laid out by `tensors`. Equal generators give the same
// bits on every machine.
template <typename T>
void InitializeParameters(const ModelConfig& config, const std::vector<TensorSpec>& tensors, CounterRng& rng,
                          std::span<T> parameters);

// T is float or double.
//   Threads: one caller at a time.
template <typename T>
class Gpt {
 public:
  // Parameters are zero until they are set by Initialize or by the caller. The values of a forward pass take
  // about max_batch * context * layers * (16 * width + heads * context) elements.
  //   REQUIRES: Validate(config).ok(); max_batch >= 1
  explicit Gpt(const ModelConfig& config, int max_batch = 1, const Layers<T>& layers = LayersForThisCpu<T>());

  void Initialize(CounterRng& rng) { InitializeParameters(config_, tensors_, rng, parameters()); }

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }
  [[nodiscard]] std::span<T> parameters() { return parameters_.span(); }  // flat, laid out by tensors()
  [[nodiscard]] std::span<const T> parameters() const { return parameters_.span(); }

  // Predicts bytes 1..S of each sequence, each from the bytes before it. Sets losses[b] to
  // scale * (sum of the S losses of sequence b, in nats). Neither depends on the other sequences.
  //   Shapes:  batch: 1 to max_batch sequences [S + 1], S = context; losses: as many as sequences.
  void Forward(std::span<const std::span<const uint8_t>> batch, T scale, std::span<double> losses);

  // Computes the gradient of the sum of the losses of the last Forward. It is the sum over the sequences in
  // the order of tree_sum.h, and replaces the contents of grad(i) [num_elems of tensor i] for each tensor i.
  //   Order:   calls `ready(i)` once per tensor, from the last to the first, when its gradient is final.
  //   REQUIRES: one Forward before each call.
  void Backward(FunctionRef<T*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready);

 private:
  // Values of a block that the backward pass needs. N = max_batch * S.
  struct BlockValues {
    Buffer<T> norm1, mean1, rstd1;  // [N,C], [N], [N]
    Buffer<T> qkv, att, mixed;      // [N,3C], [max_batch,H,S,S], [N,C]
    Buffer<T> middle;               // [N,C], the residual stream after attention
    Buffer<T> norm2, mean2, rstd2;  // [N,C], [N], [N]
    Buffer<T> up, active;           // [N,4C], [N,4C]
    Buffer<T> out;                  // [N,C], the residual stream after the MLP
  };
  // The caller's functions.
  struct Sink {
    FunctionRef<T*(size_t tensor)> grad;
    FunctionRef<void(size_t tensor)> ready;
  };

  [[nodiscard]] const T* Parameter(size_t tensor) const {
    return parameters_.data() + tensors_[tensor].offset;
  }
  // Positions of the batch.
  [[nodiscard]] int num_positions() const { return batch_ * config_.context; }
  void BlockForward(int layer, const T* in /*[N,C]*/);
  // `d_stream_` holds the gradient of the block's output on entry, and the gradient of its input on return.
  void BlockBackward(int layer, const T* in /*[N,C]*/, const Sink& sink);
  // The tensor before `bias` is the weight.
  void LinearBackward(size_t bias, const T* d_y, const T* x, int inputs, int outputs, const Sink& sink);
  // The tensor before `bias` is the gain. Adds to `d_stream_`; the gradient of the output is in `d_branch_`.
  void NormBackward(size_t bias, const T* x, const Buffer<T>& mean, const Buffer<T>& rstd, const Sink& sink);

  const ModelConfig config_;
  const Layers<T>& layers_;
  const std::vector<TensorSpec> tensors_;
  Buffer<T> parameters_;

  int batch_ = 0;                     // sequences of the last Forward
  Buffer<uint8_t> inputs_, targets_;  // [N], [N]
  Buffer<T> embedded_;                // [N,C]
  std::vector<BlockValues> blocks_;   // [layers]
  Buffer<T> final_, mean_, rstd_;     // [N,C], [N], [N]
  Buffer<T> logits_;                  // [N,V]; after Forward: the gradient of the logits
  Buffer<T> d_stream_, d_branch_;     // [N,C], [N,C]
  Buffer<T> d_wide_;                  // [N,4C]
  Scratch<T> scratch_;
};

}  // namespace ddprun::train
