// The kernels of the model: what examples/train/model/layers.h does besides matrix products. Dimensions have the names of that
// file. They are launched by name, through model_kernels.h.
//
//   Launch:    any grid and any block of one dimension (grid.cuh). In kernels that say "rows", eight threads compute a row:
//              the number of threads of a block is a multiple of 32.
//   Result:    does not depend on the grid. Sums over positions and sequences are in the order of the CPU, so that kernels
//              that only add compute the CPU's bits. The others differ from them by rounding.
//   Shapes:    pointers are device memory. Parameters with __restrict__ do not overlap each other.
#include <cstdint>

#include "worker_sdk/device/cuda/grid.cuh"

namespace {

constexpr int64_t kLanes = 8;  // threads of a row

__device__ int64_t Lane() { return threadIdx.x % kLanes; }
__device__ unsigned LanesOfRow() { return 0xFFu << (threadIdx.x % 32 / kLanes * kLanes); }

// The sum, or the maximum, over the threads of a row.
__device__ float RowSum(float value) {
  for (int distance = 4; distance > 0; distance /= 2) value += __shfl_xor_sync(LanesOfRow(), value, distance);
  return value;
}
__device__ float RowMax(float value) {
  for (int distance = 4; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(LanesOfRow(), value, distance));
  return value;
}

// Adds terms in the order of examples/train/model/tree_sum.h: sums of complete subtrees wait, the largest first.
struct TreeSum {
  float waiting[40];
  int64_t num_terms = 0;
  int count = 0;  // of the sums that wait

  __device__ void Add(float term) {
    for (int64_t bits = num_terms; (bits & 1) != 0; bits >>= 1) term = waiting[--count] + term;
    waiting[count++] = term;
    ++num_terms;
  }
  __device__ float Total() {
    float total = waiting[--count];
    while (count > 0) total = waiting[--count] + total;
    return total;
  }
};

constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2/pi)
constexpr float kGeluCube = 0.044715f;

__device__ float GeluTanh(float x) { return tanhf(kGeluScale * (x + kGeluCube * (x * x * x))); }

}  // namespace

extern "C" {

// out[i] = the sum over `num_terms` >= 1 terms of terms[t,i], in the order of tree_sum.h.
//   Shapes: out [count]; terms [num_terms,count].
__global__ void SumTerms(float* __restrict__ out, const float* __restrict__ terms, int64_t num_terms,
                         int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    TreeSum sum;
    for (int64_t t = 0; t < num_terms; ++t) sum.Add(terms[t * count + i]);
    out[i] = sum.Total();
  }
}

// inout[i] += addend[i]
__global__ void AddTo(float* __restrict__ inout, const float* __restrict__ addend, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) inout[i] += addend[i];
}

// y = y + bias, and then + residual, which may be null.
//   Shapes: y, residual [N,O]; bias [O].
__global__ void AddBias(float* __restrict__ y, const float* __restrict__ bias,
                        const float* __restrict__ residual, int64_t N, int64_t O) {
  for (int64_t i = FirstIndex(); i < N * O; i += Stride()) {
    float value = y[i] + bias[i % O];
    if (residual != nullptr) value += residual[i];
    y[i] = value;
  }
}

// The gradients of a bias, one for each sequence, for SumTerms: sums[b,o] = the sum over s of d_y[b,s,o].
//   Shapes: sums [B,O]; d_y [B,S,O].
__global__ void BiasBackward(float* __restrict__ sums, const float* __restrict__ d_y, int64_t B, int64_t S,
                             int64_t O) {
  for (int64_t i = FirstIndex(); i < B * O; i += Stride()) {
    const float* column = d_y + i / O * S * O + i % O;
    float sum = 0;
    for (int64_t s = 0; s < S; ++s) sum += column[s * O];
    sums[i] = sum;
  }
}

// Shapes: x [N,C]; tokens [N]; token_table [V,C]; position_table [S,C]; N is a multiple of S.
__global__ void EmbedForward(float* __restrict__ x, const uint8_t* __restrict__ tokens,
                             const float* __restrict__ token_table, const float* __restrict__ position_table,
                             int64_t N, int64_t S, int64_t C) {
  for (int64_t i = FirstIndex(); i < N * C; i += Stride()) {
    const int64_t n = i / C, c = i % C;
    x[i] = token_table[static_cast<int64_t>(tokens[n]) * C + c] + position_table[n % S * C + c];
  }
}

// The gradient of the token table. That of the position table is SumTerms of d_x.
//   Shapes: d_table [V,C]; d_x [B,S,C]; tokens [B,S].
__global__ void EmbedTokensBackward(float* __restrict__ d_table, const float* __restrict__ d_x,
                                    const uint8_t* __restrict__ tokens, int64_t B, int64_t S, int64_t C,
                                    int64_t V) {
  for (int64_t i = FirstIndex(); i < V * C; i += Stride()) {
    const int64_t v = i / C, c = i % C;
    TreeSum sum;
    for (int64_t b = 0; b < B; ++b) {
      float of_sequence = 0;
      for (int64_t n = b * S; n < (b + 1) * S; ++n) {
        if (tokens[n] == v) of_sequence += d_x[n * C + c];
      }
      sum.Add(of_sequence);
    }
    d_table[i] = sum.Total();
  }
}

// Rows. Shapes: y, x [N,C]; mean, rstd [N]; gain, bias [C].
__global__ void NormForward(float* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd,
                            const float* __restrict__ x, const float* __restrict__ gain,
                            const float* __restrict__ bias, int64_t N, int64_t C) {
  for (int64_t n = FirstIndex() / kLanes; n < N; n += Stride() / kLanes) {
    const float* in = x + n * C;
    float sum = 0, squares = 0;
    for (int64_t c = Lane(); c < C; c += kLanes) sum += in[c];
    const float middle = RowSum(sum) / C;
    for (int64_t c = Lane(); c < C; c += kLanes) squares += (in[c] - middle) * (in[c] - middle);
    const float scale = 1.0f / sqrtf(RowSum(squares) / C + 1e-5f);
    for (int64_t c = Lane(); c < C; c += kLanes) y[n * C + c] = (in[c] - middle) * scale * gain[c] + bias[c];
    if (Lane() == 0) {
      mean[n] = middle;
      rstd[n] = scale;
    }
  }
}

// Rows. Adds to d_x, because the residual stream bypasses the norm.
//   Shapes: d_x, d_y, x [N,C]; mean, rstd [N]; gain [C].
__global__ void NormBackwardInput(float* __restrict__ d_x, const float* __restrict__ d_y,
                                  const float* __restrict__ x, const float* __restrict__ mean,
                                  const float* __restrict__ rstd, const float* __restrict__ gain, int64_t N,
                                  int64_t C) {
  for (int64_t n = FirstIndex() / kLanes; n < N; n += Stride() / kLanes) {
    const float *in = x + n * C, *d_out = d_y + n * C;
    const float middle = mean[n], scale = rstd[n];
    float along_mean = 0, along_normal = 0;
    for (int64_t c = Lane(); c < C; c += kLanes) {
      along_mean += d_out[c] * gain[c];
      along_normal += d_out[c] * ((in[c] - middle) * scale) * gain[c];
    }
    const float mean_part = RowSum(along_mean) / C, normal_part = RowSum(along_normal) / C;
    for (int64_t c = Lane(); c < C; c += kLanes) {
      const float normal = (in[c] - middle) * scale;
      d_x[n * C + c] += (d_out[c] * gain[c] - mean_part - normal * normal_part) * scale;
    }
  }
}

// The gradients of the gain and the bias, one for each sequence, for SumTerms.
//   Shapes: d_gains, d_biases [B,C]; d_y, x [B,S,C]; mean, rstd [B,S].
__global__ void NormBackwardParameters(float* __restrict__ d_gains, float* __restrict__ d_biases,
                                       const float* __restrict__ d_y, const float* __restrict__ x,
                                       const float* __restrict__ mean, const float* __restrict__ rstd,
                                       int64_t B, int64_t S, int64_t C) {
  for (int64_t i = FirstIndex(); i < B * C; i += Stride()) {
    const int64_t b = i / C, c = i % C;
    float d_gain = 0, d_bias = 0;
    for (int64_t n = b * S; n < (b + 1) * S; ++n) {
      d_gain += d_y[n * C + c] * ((x[n * C + c] - mean[n]) * rstd[n]);
      d_bias += d_y[n * C + c];
    }
    d_gains[i] = d_gain;
    d_biases[i] = d_bias;
  }
}

// Rows. Row s of each matrix becomes softmax(scale * row) of its elements 0..s, and zero behind them.
//   Shapes: att [num_matrices,S,S].
__global__ void CausalSoftmax(float* __restrict__ att, float scale, int64_t num_matrices, int64_t S) {
  for (int64_t r = FirstIndex() / kLanes; r < num_matrices * S; r += Stride() / kLanes) {
    float* row = att + r * S;
    const int64_t n = r % S + 1;
    float max = row[0], sum = 0;
    for (int64_t i = Lane(); i < n; i += kLanes) max = fmaxf(max, row[i]);
    max = RowMax(max);
    for (int64_t i = Lane(); i < n; i += kLanes) {
      row[i] = expf((row[i] - max) * scale);
      sum += row[i];
    }
    const float factor = 1.0f / RowSum(sum);
    for (int64_t i = Lane(); i < S; i += kLanes) row[i] = i < n ? row[i] * factor : 0.0f;
  }
}

// Rows. Replaces the gradient of the weights with that of the scores before scaling.
//   Shapes: d_att, att [num_matrices,S,S].
__global__ void CausalSoftmaxBackward(float* __restrict__ d_att, const float* __restrict__ att, float scale,
                                      int64_t num_matrices, int64_t S) {
  for (int64_t r = FirstIndex() / kLanes; r < num_matrices * S; r += Stride() / kLanes) {
    float* d_row = d_att + r * S;
    const float* row = att + r * S;
    const int64_t n = r % S + 1;
    float sum = 0;
    for (int64_t i = Lane(); i < n; i += kLanes) sum += d_row[i] * row[i];
    const float along = RowSum(sum);
    for (int64_t i = Lane(); i < S; i += kLanes)
      d_row[i] = i < n ? (d_row[i] - along) * row[i] * scale : 0.0f;
  }
}

__global__ void GeluForward(float* __restrict__ y, const float* __restrict__ x, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) y[i] = 0.5f * x[i] * (1.0f + GeluTanh(x[i]));
}

// Replaces the gradient of y with the gradient of x.
__global__ void GeluBackward(float* __restrict__ d, const float* __restrict__ x, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    const float tanh = GeluTanh(x[i]);
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCube * (x[i] * x[i]));
    d[i] = d[i] * 0.5f * (1.0f + tanh + x[i] * (1.0f - tanh * tanh) * slope);
  }
}

// Rows. losses[n] = -log softmax(logits[n])[targets[n]]; replaces `logits` with the gradient of scale * (sum of the losses).
//   Shapes: losses, targets [N]; logits [N,V].
__global__ void CrossEntropyRows(double* __restrict__ losses, float* __restrict__ logits,
                                 const uint8_t* __restrict__ targets, float scale, int64_t N, int64_t V) {
  for (int64_t n = FirstIndex() / kLanes; n < N; n += Stride() / kLanes) {
    float* row = logits + n * V;
    const int64_t target = targets[n];
    float max = row[0], sum = 0;
    for (int64_t i = Lane(); i < V; i += kLanes) max = fmaxf(max, row[i]);
    max = RowMax(max);
    const float target_logit = row[target] - max;
    __syncwarp(LanesOfRow());  // before another thread of the row overwrites row[target]
    for (int64_t i = Lane(); i < V; i += kLanes) {
      row[i] = expf(row[i] - max);
      sum += row[i];
    }
    sum = RowSum(sum);
    for (int64_t i = Lane(); i < V; i += kLanes)
      row[i] = row[i] * (scale / sum) - (i == target ? scale : 0.0f);
    if (Lane() == 0) losses[n] = static_cast<double>(logf(sum) - target_logit);
  }
}

// out[b] = scale * (sum over s of losses[b,s])
//   Shapes: out [B]; losses [B,S].
__global__ void SumLosses(double* __restrict__ out, const double* __restrict__ losses, float scale, int64_t B,
                          int64_t S) {
  for (int64_t b = FirstIndex(); b < B; b += Stride()) {
    double sum = 0;
    for (int64_t s = 0; s < S; ++s) sum += losses[b * S + s];
    out[b] = sum * static_cast<double>(scale);
  }
}

}  // extern "C"
