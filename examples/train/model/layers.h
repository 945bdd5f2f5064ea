// The layers of the model for one sequence: plain functions of arrays, forward and backward.
//
// Dimensions: S sequence positions, C width, H heads, D = C/H, I inputs, O outputs, V vocabulary. Arrays
// are dense and row-major, owned by the caller, never null unless stated, and must not overlap. A backward
// function takes the gradient of its output (d_y) and the values of the forward pass. It overwrites the
// gradients of parameters, because each parameter is used once per sequence. It also overwrites d_x, unless
// its comment says that it adds.
//
// One source is compiled for each CPU variant named below. Equal inputs at equal alignment (see buffer.h)
// give equal bits in every process that uses the same variant, on any CPU model.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ddprun::train {

template <typename T>
class Layers {
 public:
  virtual ~Layers() = default;

  // x[s] = token_table[tokens[s]] + position_table[s]
  virtual void EmbedForward(T* x /*[S,C]*/, const uint8_t* tokens /*[S]*/, const T* token_table /*[V,C]*/,
                            const T* position_table /*[S,C]*/, int S, int C) const = 0;
  virtual void EmbedBackward(T* d_token_table /*[V,C]*/, T* d_position_table /*[S,C]*/,
                             const T* d_x /*[S,C]*/, const uint8_t* tokens /*[S]*/, int S, int C,
                             int V) const = 0;

  // y = (x - mean) * rstd * gain + bias, mean and variance over C; `mean` and `rstd` are kept for backward.
  virtual void NormForward(T* y /*[S,C]*/, T* mean /*[S]*/, T* rstd /*[S]*/, const T* x /*[S,C]*/,
                           const T* gain /*[C]*/, const T* bias /*[C]*/, int S, int C) const = 0;
  // Adds to d_x: the residual stream bypasses the norm.
  virtual void NormBackward(T* d_x /*[S,C]*/, T* d_gain /*[C]*/, T* d_bias /*[C]*/, const T* d_y /*[S,C]*/,
                            const T* x /*[S,C]*/, const T* mean /*[S]*/, const T* rstd /*[S]*/,
                            const T* gain /*[C]*/, int S, int C) const = 0;

  // y = x * weight^T + bias; `bias` may be null.
  virtual void LinearForward(T* y /*[S,O]*/, const T* x /*[S,I]*/, const T* weight /*[O,I]*/,
                             const T* bias /*[O]*/, int S, int I, int O) const = 0;
  // `d_bias` may be null.
  virtual void LinearBackward(T* d_x /*[S,I]*/, T* d_weight /*[O,I]*/, T* d_bias /*[O]*/,
                              const T* d_y /*[S,O]*/, const T* x /*[S,I]*/, const T* weight /*[O,I]*/, int S,
                              int I, int O) const = 0;

  // Per head: y = softmax(q * k^T / sqrt(D)) * v, where position s attends to positions 0..s. q, k and v of
  // head h are the D columns from h*D of the three parts of qkv. `att` (weights after softmax) is kept for
  // backward.
  virtual void AttentionForward(T* y /*[S,C]*/, T* att /*[H,S,S]*/, const T* qkv /*[S,3C]*/, int S, int C,
                                int H) const = 0;
  // `scratch` holds d_att of one head.
  virtual void AttentionBackward(T* d_qkv /*[S,3C]*/, T* scratch /*[S,S]*/, const T* d_y /*[S,C]*/,
                                 const T* qkv /*[S,3C]*/, const T* att /*[H,S,S]*/, int S, int C,
                                 int H) const = 0;

  // y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), element by element.
  virtual void GeluForward(T* y /*[n]*/, const T* x /*[n]*/, int n) const = 0;
  virtual void GeluBackward(T* d_x /*[n]*/, const T* d_y /*[n]*/, const T* x /*[n]*/, int n) const = 0;

  // x += y
  virtual void Add(T* x /*[n]*/, const T* y /*[n]*/, int64_t n) const = 0;

  // Returns scale * sum over s of -log softmax(logits[s])[targets[s]]; overwrites `logits` with its gradient.
  virtual double CrossEntropy(T* logits /*[S,V]*/, const uint8_t* targets /*[S]*/, T scale, int S,
                              int V) const = 0;

  // "avx2" or "baseline"
  [[nodiscard]] virtual absl::string_view cpu() const = 0;
};

// The best variant that this CPU supports. Static lifetime. T is float or double.
template <typename T>
const Layers<T>& LayersForThisCpu();

// The variant named `cpu` ("avx2", "baseline"), or LayersForThisCpu ("auto"). Null: the name is unknown, or
// this CPU does not support the variant.
template <typename T>
const Layers<T>* LayersFor(absl::string_view cpu);

}  // namespace ddprun::train
