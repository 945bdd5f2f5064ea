// The layers of the model, as forward and backward functions on the arrays of one sequence.
//
// Dimensions: S sequence positions, C width, H heads, D = C/H, I inputs, O outputs, V vocabulary. Arrays
// are dense and row-major, owned by the caller, not null unless stated otherwise, and must not overlap. A
// backward function takes the gradient of the layer's output (d_y) and the values of the forward pass. It
// overwrites the gradients of parameters, because each parameter is used once per sequence. It also
// overwrites d_x unless stated otherwise.
//
// layers.cc is compiled once for each CPU variant; see cpu(). Equal inputs with equal alignment (see
// buffer.h) give equal bits in every process that uses the same variant, on any CPU model.
#pragma once

#include <cstdint>
#include <string_view>

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

  // y = (x - mean) * rstd * gain + bias, where rstd = 1 / sqrt(variance + 1e-5); mean and variance are over
  // C. The caller keeps `mean` and `rstd` for NormBackward.
  virtual void NormForward(T* y /*[S,C]*/, T* mean /*[S]*/, T* rstd /*[S]*/, const T* x /*[S,C]*/,
                           const T* gain /*[C]*/, const T* bias /*[C]*/, int S, int C) const = 0;
  // Adds to d_x, because the residual stream bypasses the norm.
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

  // For each head, y = softmax(q * k^T / sqrt(D)) * v, where position s attends to positions 0..s. q, k and v
  // of head h are the D columns from h*D in the three parts of qkv. `att` receives the weights after softmax;
  // the caller keeps them for AttentionBackward.
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

  // Returns the loss, scale * sum over s of -log softmax(logits[s])[targets[s]]. Overwrites `logits` with the
  // gradient of the loss.
  virtual double CrossEntropy(T* logits /*[S,V]*/, const uint8_t* targets /*[S]*/, T scale, int S,
                              int V) const = 0;

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
