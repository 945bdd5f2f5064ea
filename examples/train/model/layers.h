// The layers of the model, as forward and backward functions on the arrays of a batch.
//
// Dimensions: B sequences, S sequence positions, N = B*S positions of the batch, C width, H heads, D = C/H, I
// inputs, O outputs, V vocabulary. Arrays are dense and row-major, owned by the caller, not null unless
// stated otherwise, and must not overlap. A backward function takes the gradient of the layer's output (d_y)
// and the values of the forward pass. It overwrites the gradients of parameters, and d_x unless stated
// otherwise.
//
// The values and the d_x of a sequence do not depend on the other sequences of the batch, nor on their
// number. Gradients of parameters are sums over the sequences in the order of tree_sum.h; within a sequence,
// over ascending positions.
//
// layers.cc is compiled once for each CPU variant; see cpu(). Equal inputs give equal bits in every process
// that uses the same variant, on any CPU model and for any alignment of the arrays.
#pragma once

#include <cstdint>
#include <string_view>

#include "examples/train/model/buffer.h"

namespace ddprun::train {

// Memory for intermediate values, which the functions below resize as needed. Its contents have no meaning
// between two calls.
//   Threads: one caller at a time.
template <typename T>
class Scratch {
 public:
  // Returns `num_elems` elements, valid until the next call.
  T* Get(int64_t num_elems);

 private:
  Buffer<T> buffer_;
};

template <typename T>
class Layers {
 public:
  virtual ~Layers() = default;

  // x[b,s] = token_table[tokens[b,s]] + position_table[s]
  virtual void EmbedForward(T* x /*[B,S,C]*/, const uint8_t* tokens /*[B,S]*/, const T* token_table /*[V,C]*/,
                            const T* position_table /*[S,C]*/, int B, int S, int C) const = 0;
  // Overwrites `d_x`.
  virtual void EmbedBackward(T* d_token_table /*[V,C]*/, T* d_position_table /*[S,C]*/, T* d_x /*[B,S,C]*/,
                             const uint8_t* tokens /*[B,S]*/, Scratch<T>& scratch, int B, int S, int C,
                             int V) const = 0;

  // y = (x - mean) * rstd * gain + bias, where rstd = 1 / sqrt(variance + 1e-5); mean and variance are over
  // C. The caller keeps `mean` and `rstd` for NormBackward.
  virtual void NormForward(T* y /*[N,C]*/, T* mean /*[N]*/, T* rstd /*[N]*/, const T* x /*[N,C]*/,
                           const T* gain /*[C]*/, const T* bias /*[C]*/, int N, int C) const = 0;
  // Adds to d_x, because the residual stream bypasses the norm.
  virtual void NormBackward(T* d_x /*[B,S,C]*/, T* d_gain /*[C]*/, T* d_bias /*[C]*/,
                            const T* d_y /*[B,S,C]*/, const T* x /*[B,S,C]*/, const T* mean /*[B,S]*/,
                            const T* rstd /*[B,S]*/, const T* gain /*[C]*/, Scratch<T>& scratch, int B, int S,
                            int C) const = 0;

  // y = x * weight^T + bias + residual; `bias` and `residual` may be null.
  virtual void LinearForward(T* y /*[N,O]*/, const T* x /*[N,I]*/, const T* weight /*[O,I]*/,
                             const T* bias /*[O]*/, const T* residual /*[N,O]*/, int N, int I,
                             int O) const = 0;
  // The gradients of the parameters; `d_bias` may be null.
  virtual void LinearBackward(T* d_weight /*[O,I]*/, T* d_bias /*[O]*/, const T* d_y /*[B,S,O]*/,
                              const T* x /*[B,S,I]*/, Scratch<T>& scratch, int B, int S, int I,
                              int O) const = 0;
  // The gradient of the input: d_x = d_y * weight.
  virtual void LinearBackwardInput(T* d_x /*[N,I]*/, const T* d_y /*[N,O]*/, const T* weight /*[O,I]*/, int N,
                                   int I, int O) const = 0;

  // For each head, y = softmax(q * k^T / sqrt(D)) * v, where position s attends to positions 0..s. q, k and v
  // of head h are the D columns from h*D in the three parts of qkv. `att` receives the weights after softmax
  // on and below the diagonal; the caller keeps them for AttentionBackward.
  virtual void AttentionForward(T* y /*[B,S,C]*/, T* att /*[B,H,S,S]*/, const T* qkv /*[B,S,3C]*/,
                                Scratch<T>& scratch, int B, int S, int C, int H) const = 0;
  virtual void AttentionBackward(T* d_qkv /*[B,S,3C]*/, const T* d_y /*[B,S,C]*/, const T* qkv /*[B,S,3C]*/,
                                 const T* att /*[B,H,S,S]*/, Scratch<T>& scratch, int B, int S, int C,
                                 int H) const = 0;

  // The part of AttentionForward between its products, for one head: row s of `att` becomes softmax(scale * row) of its
  // elements 0..s. Elements above the diagonal have no meaning.
  virtual void CausalSoftmax(T* att /*[S,S]*/, T scale, int S) const = 0;
  // Likewise of AttentionBackward: replaces the gradient of the weights with that of the scores before scaling.
  virtual void CausalSoftmaxBackward(T* d_att /*[S,S]*/, const T* att /*[S,S]*/, T scale, int S) const = 0;

  // y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), element by element.
  virtual void GeluForward(T* y /*[n]*/, const T* x /*[n]*/, int64_t n) const = 0;
  // Replaces the gradient of y with the gradient of x.
  virtual void GeluBackward(T* d /*[n]*/, const T* x /*[n]*/, int64_t n) const = 0;

  // For each sequence, losses[b] = scale * sum over s of -log softmax(logits[b,s])[targets[b,s]]. Overwrites
  // `logits` with the gradient of the sum of losses.
  virtual void CrossEntropy(double* losses /*[B]*/, T* logits /*[B,S,V]*/, const uint8_t* targets /*[B,S]*/,
                            T scale, int B, int S, int V) const = 0;

  // The part of CrossEntropy for each position: losses[n] = -log softmax(logits[n])[targets[n]], without `scale`.
  virtual void CrossEntropyRows(double* losses /*[N]*/, T* logits /*[N,V]*/, const uint8_t* targets /*[N]*/,
                                T scale, int N, int V) const = 0;

  // The CPU variant: "avx2" or "baseline".
  [[nodiscard]] virtual std::string_view cpu() const = 0;
};

// Returns the best variant that this CPU supports, an object with static lifetime. T is float or double.
template <typename T>
const Layers<T>& LayersForThisCpu();

// Returns the variant `cpu` ("avx2" or "baseline"), or LayersForThisCpu() if `cpu` is "auto". Returns null if
// the name is unknown or this CPU does not support the variant.
template <typename T>
const Layers<T>* LayersFor(std::string_view cpu);

}  // namespace ddprun::train
