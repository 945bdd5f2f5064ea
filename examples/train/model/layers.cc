// Compiled once for each CPU variant (see BUILD.bazel), with these macros:
//   DDPRUN_LAYERS  name of the function that returns this variant, declared in layers_variants.h
//   DDPRUN_CPU     name of the variant, and of the namespace of its matrix products
//   Eigen          name of Eigen's namespace in this variant
// The namespaces differ so that the linker does not merge functions of two variants. For the same reason,
// this file avoids inline functions of the standard library that the compiler may choose not to inline.

#include "examples/train/model/layers.h"

#include <eigen3/Eigen/Core>
#include <string_view>

#include "examples/train/model/layers_variants.h"
#include "examples/train/model/matrix.h"

#define DDPRUN_TEXT(name) DDPRUN_TEXT_OF(name)
#define DDPRUN_TEXT_OF(name) #name

namespace ddprun::train {
namespace {

using namespace DDPRUN_CPU;  // NOLINT: the products of this variant

// The functions below process arrays in chunks of this many elements, from the first element on, with the
// same instructions for all chunks. An expression of a whole array would not do: Eigen processes its first
// and last elements one by one, depending on the alignment, and rounds tanh and exp differently there.
template <typename T>
using Chunk = Eigen::Array<T, kLanes<T>, 1>;

struct WholeChunk {
  template <typename T>
  Chunk<T> Load(const T* p, T /*missing*/) const {
    return Chunk<T>::Map(p);
  }
  template <typename T>
  void Store(T* p, const Chunk<T>& values) const {
    Chunk<T>::Map(p) = values;
  }
};

struct PartOfChunk {
  int64_t size;

  template <typename T>
  Chunk<T> Load(const T* p, T missing) const {
    Chunk<T> values = Chunk<T>::Constant(missing);
    for (int64_t i = 0; i < size; ++i) values[i] = p[i];
    return values;
  }
  template <typename T>
  void Store(T* p, const Chunk<T>& values) const {
    for (int64_t i = 0; i < size; ++i) p[i] = values[i];
  }
};

// Calls body(i, part) for the chunks of [0, n); `part` loads and stores the chunk at i.
template <typename T, typename Body>
[[gnu::always_inline]] inline void ForChunks(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, WholeChunk());
  if (i < n) body(i, PartOfChunk{n - i});
}

template <typename T>
void AddTo(T* sum, const T* terms, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += terms[i];
}

// Sets sum [n] to the sum of terms [B,n], in the order of tree_sum.h. Overwrites `terms`.
template <typename T>
void SumSequences(T* sum, T* terms, int64_t B, int64_t n) {
  for (int64_t distance = 1; distance < B; distance *= 2) {
    for (int64_t b = 0; b + distance < B; b += 2 * distance)
      AddTo(terms + b * n, terms + (b + distance) * n, n);
  }
  __builtin_memcpy(sum, terms, n * sizeof(T));
}

constexpr double kNormEpsilon = 1e-5;
constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kGeluCube = 0.044715;

template <typename T>
Chunk<T> GeluTanh(const Chunk<T>& x) {
  return (T(kGeluScale) * (x + T(kGeluCube) * x.cube())).tanh();
}

// Positions of which LinearBackward multiplies the factors at once, so that they stay in the L2 cache.
constexpr int64_t kPositionsAtOnce = 256;

template <typename T>
class LayersOfThisKind final : public Layers<T> {
 public:
  void EmbedForward(T* x, const uint8_t* tokens, const T* token_table, const T* position_table, int B, int S,
                    int C) const override {
    for (int64_t n = 0; n < int64_t{B} * S; ++n) {
      const T* token = token_table + int64_t{tokens[n]} * C;
      const T* position = position_table + n % S * C;
      for (int64_t c = 0; c < C; ++c) x[n * C + c] = token[c] + position[c];
    }
  }

  void EmbedBackward(T* d_token_table, T* d_position_table, T* d_x, const uint8_t* tokens,
                     Scratch<T>& scratch, int B, int S, int C, int V) const override {
    // A few columns at a time, because the tables of all sequences would take much memory.
    constexpr int64_t kColumns = 32;
    T* tables = scratch.Get(B * V * kColumns);  // [B,V,columns]
    for (int64_t c = 0; c < C; c += kColumns) {
      const int64_t columns = Least(kColumns, C - c);
      __builtin_memset(tables, 0, B * V * columns * sizeof(T));
      for (int64_t n = 0; n < int64_t{B} * S; ++n) {
        AddTo(tables + (n / S * V + tokens[n]) * columns, d_x + n * C + c, columns);
      }
      SumSequences(tables, tables, B, V * columns);
      for (int64_t v = 0; v < V; ++v) {
        __builtin_memcpy(d_token_table + v * C + c, tables + v * columns, columns * sizeof(T));
      }
    }
    SumSequences(d_position_table, d_x, B, int64_t{S} * C);
  }

  void NormForward(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, int N,
                   int C) const override {
    for (int64_t n = 0; n < N; ++n) {
      const T* in = x + n * C;
      Chunk<T> sum = Chunk<T>::Zero(), squares = Chunk<T>::Zero();
      ForChunks<T>(C, [&](int64_t c, auto part) { sum += part.Load(in + c, T(0)); });
      const T middle = sum.sum() / T(C);
      ForChunks<T>(C,
                   [&](int64_t c, auto part) { squares += (part.Load(in + c, middle) - middle).square(); });
      const T scale = T(1) / Eigen::numext::sqrt(squares.sum() / T(C) + T(kNormEpsilon));
      ForChunks<T>(C, [&](int64_t c, auto part) {
        const Chunk<T> normal = (part.Load(in + c, T(0)) - middle) * scale;
        part.Store(y + n * C + c, Chunk<T>(normal * part.Load(gain + c, T(0)) + part.Load(bias + c, T(0))));
      });
      mean[n] = middle;
      rstd[n] = scale;
    }
  }

  void NormBackward(T* d_x, T* d_gain, T* d_bias, const T* d_y, const T* x, const T* mean, const T* rstd,
                    const T* gain, Scratch<T>& scratch, int B, int S, int C) const override {
    T* d_gains = scratch.Get(int64_t{2} * B * C);  // [B,C]
    T* d_biases = d_gains + int64_t{B} * C;        // [B,C]
    __builtin_memset(d_gains, 0, int64_t{2} * B * C * sizeof(T));
    for (int64_t n = 0; n < int64_t{B} * S; ++n) {
      const T* in = x + n * C;
      const T* d_out = d_y + n * C;
      T* d_in = d_x + n * C;
      T* gains_row = d_gains + n / S * C;
      T* biases_row = d_biases + n / S * C;
      const auto normal = [&](int64_t c, auto part) -> Chunk<T> {
        return (part.Load(in + c, T(0)) - mean[n]) * rstd[n];
      };
      // Sums over the components along mean and variance, which normalization cancels.
      Chunk<T> along_mean = Chunk<T>::Zero(), along_normal = Chunk<T>::Zero();
      ForChunks<T>(C, [&](int64_t c, auto part) {
        const Chunk<T> d = part.Load(d_out + c, T(0)), scaled = d * normal(c, part);
        const Chunk<T> gains = part.Load(gain + c, T(0));
        along_mean += d * gains;
        along_normal += scaled * gains;
        part.Store(gains_row + c, Chunk<T>(part.Load(gains_row + c, T(0)) + scaled));
        part.Store(biases_row + c, Chunk<T>(part.Load(biases_row + c, T(0)) + d));
      });
      const T mean_part = along_mean.sum() / T(C), normal_part = along_normal.sum() / T(C);
      ForChunks<T>(C, [&](int64_t c, auto part) {
        const Chunk<T> d_normal = part.Load(d_out + c, T(0)) * part.Load(gain + c, T(0));
        const Chunk<T> d = (d_normal - mean_part - normal(c, part) * normal_part) * rstd[n];
        part.Store(d_in + c, Chunk<T>(part.Load(d_in + c, T(0)) + d));
      });
    }
    SumSequences(d_gain, d_gains, B, C);
    SumSequences(d_bias, d_biases, B, C);
  }

  void LinearForward(T* y, const T* x, const T* weight, const T* bias, const T* residual, int N, int I,
                     int O) const override {
    Multiply<T>(y, O, x, I, {.data = weight, .stride = I, .is_transposed = true}, N, I, O, bias, residual);
  }

  void LinearBackward(T* d_weight, T* d_bias, const T* d_y, const T* x, Scratch<T>& scratch, int B, int S,
                      int I, int O) const override {
    // A group is a power of two of sequences, so that its sum is a subtree.
    int64_t group = 1;
    while (group < B && 2 * group * S <= kPositionsAtOnce) group *= 2;
    int levels = 0;  // of sums of groups that wait for others
    while ((group << levels) < B) ++levels;
    const int64_t weight_elems = RoundUp(int64_t{O} * I, kPanel<T>);
    const int64_t d_y_elems = PackedRowsElems(S, O), x_elems = PackedElems<T>(S, I);
    T* waiting = scratch.Get(levels * weight_elems + group * (x_elems + d_y_elems) + int64_t{B} * O);
    T* packed_x = waiting + levels * weight_elems;
    T* packed_d_y = packed_x + group * x_elems;
    T* d_biases = packed_d_y + group * d_y_elems;  // [B,O]
    __builtin_memset(d_biases, 0, int64_t{B} * O * sizeof(T));
    int count = 0;
    for (int64_t first = 0; first < B; first += group) {
      const int64_t end = Least(first + group, B);
      for (int64_t b = first; b < end; ++b) {
        if (d_bias != nullptr) {
          for (int64_t s = 0; s < S; ++s) AddTo(d_biases + b * O, d_y + (b * S + s) * O, O);
        }
        PackRows<T>(packed_d_y + (b - first) * d_y_elems, d_y + b * S * O, O, S, O);
        Pack<T>(packed_x + (b - first) * x_elems, x + b * S * I, I, S, I);
      }
      // The last group is added to all sums that wait, the others to those of equally many groups.
      Addends<T> addends;
      for (int64_t bits = first / group; end == B ? count > 0 : (bits & 1) != 0; bits >>= 1) {
        addends.Add(waiting + --count * weight_elems);
      }
      T* sum = end == B ? d_weight : waiting + count++ * weight_elems;
      SumOfProducts<T>(sum, I, packed_d_y, packed_x, O, end - first, S, I, addends);
    }
    if (d_bias != nullptr) SumSequences(d_bias, d_biases, B, O);
  }

  void LinearBackwardInput(T* d_x, const T* d_y, const T* weight, int N, int I, int O) const override {
    Multiply<T>(d_x, I, d_y, O, {.data = weight, .stride = I, .is_transposed = false}, N, O, I, nullptr,
                nullptr);
  }

  void AttentionForward(T* y, T* att, const T* qkv, Scratch<T>& scratch, int B, int S, int C,
                        int H) const override {
    const int64_t D = C / H, wide = int64_t{3} * C;
    const T scale = T(1) / Eigen::numext::sqrt(T(D));
    T* packed_k = scratch.Get(PackedElems<T>(D, S) + PackedElems<T>(S, D));
    T* packed_v = packed_k + PackedElems<T>(D, S);
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t h = 0; h < H; ++h) {
        const T* q = qkv + b * S * wide + h * D;
        T* weights = att + (b * H + h) * S * S;
        PackTransposed<T>(packed_k, q + C, wide, D, S);
        MultiplyToLower<T>(weights, q, wide, packed_k, S, D);
        CausalSoftmax(weights, scale, S);
        Pack<T>(packed_v, q + 2 * C, wide, S, D);
        MultiplyLower<T>(y + b * S * C + h * D, C, weights, packed_v, S, D);
      }
    }
  }

  void AttentionBackward(T* d_qkv, const T* d_y, const T* qkv, const T* att, Scratch<T>& scratch, int B,
                         int S, int C, int H) const override {
    const int64_t D = C / H, wide = int64_t{3} * C;
    const T scale = T(1) / Eigen::numext::sqrt(T(D));
    const int64_t lower_elems = RoundUp(int64_t{S} * S, kPanel<T>);
    const int64_t packed_elems = PackedElems<T>(D, S) + PackedElems<T>(S, D);
    T* d_scores = scratch.Get(lower_elems + packed_elems + PackedRowsElems(S, kTileRows));  // [S,S]
    T* packed = d_scores + lower_elems;
    T* rows = packed + packed_elems;
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t h = 0; h < H; ++h) {
        const T* q = qkv + b * S * wide + h * D;
        T* d_q = d_qkv + b * S * wide + h * D;
        const T* d_out = d_y + b * S * C + h * D;
        const T* weights = att + (b * H + h) * S * S;
        Pack<T>(packed, d_out, C, S, D);
        MultiplyLowerTransposed<T>(d_q + 2 * C, wide, weights, packed, rows, S, D);
        PackTransposed<T>(packed, q + 2 * C, wide, D, S);
        MultiplyToLower<T>(d_scores, d_out, C, packed, S, D);
        CausalSoftmaxBackward(d_scores, weights, scale, S);
        Pack<T>(packed, q + C, wide, S, D);
        MultiplyLower<T>(d_q, wide, d_scores, packed, S, D);
        Pack<T>(packed, q, wide, S, D);
        MultiplyLowerTransposed<T>(d_q + C, wide, d_scores, packed, rows, S, D);
      }
    }
  }

  void CausalSoftmax(T* att, T scale, int S) const override {
    for (int64_t s = 0; s < S; ++s) SoftmaxRow(att + s * S, scale, s + 1, S);
  }

  void CausalSoftmaxBackward(T* d_att, const T* att, T scale, int S) const override {
    for (int64_t s = 0; s < S; ++s) SoftmaxRowBackward(d_att + s * S, att + s * S, scale, s + 1, S);
  }

  void GeluForward(T* y, const T* x, int64_t n) const override {
    ForChunks<T>(n, [&](int64_t i, auto part) {
      const Chunk<T> in = part.Load(x + i, T(0));
      part.Store(y + i, Chunk<T>(T(0.5) * in * (T(1) + GeluTanh<T>(in))));
    });
  }

  void GeluBackward(T* d, const T* x, int64_t n) const override {
    ForChunks<T>(n, [&](int64_t i, auto part) {
      const Chunk<T> in = part.Load(x + i, T(0)), tanh = GeluTanh<T>(in);
      const Chunk<T> slope = T(kGeluScale) * (T(1) + T(3 * kGeluCube) * in.square());
      part.Store(d + i, Chunk<T>(part.Load(d + i, T(0)) * T(0.5) *
                                 (T(1) + tanh + in * (T(1) - tanh.square()) * slope)));
    });
  }

  void CrossEntropy(double* losses, T* logits, const uint8_t* targets, T scale, int B, int S,
                    int V) const override {
    for (int64_t b = 0; b < B; ++b) {
      double loss = 0;
      for (int64_t n = b * S; n < (b + 1) * S; ++n)
        loss += CrossEntropyRow(logits + n * V, targets[n], scale, V);
      losses[b] = loss * static_cast<double>(scale);
    }
  }

  void CrossEntropyRows(double* losses, T* logits, const uint8_t* targets, T scale, int N,
                        int V) const override {
    for (int64_t n = 0; n < N; ++n) losses[n] = CrossEntropyRow(logits + n * V, targets[n], scale, V);
  }

  [[nodiscard]] std::string_view cpu() const override { return DDPRUN_TEXT(DDPRUN_CPU); }

 private:
  static T Max(const T* row, int64_t n) {
    Chunk<T> max = Chunk<T>::Constant(row[0]);
    ForChunks<T>(n, [&](int64_t i, auto part) { max = max.max(part.Load(row + i, row[0])); });
    return max.maxCoeff();
  }
  // Replaces each x with exp(scale * (x - max)); returns the sum.
  static T ReplaceByExp(T* row, T max, T scale, int64_t n) {
    Chunk<T> sum = Chunk<T>::Zero();
    ForChunks<T>(n, [&](int64_t i, auto part) {
      part.Store(row + i, Chunk<T>(((part.Load(row + i, max) - max) * scale).exp()));
      sum += part.Load(row + i, T(0));
    });
    return sum.sum();
  }
  // Replaces the logits of a position with their gradient; returns the loss.
  static double CrossEntropyRow(T* row, uint8_t target, T scale, int64_t V) {
    const T max = Max(row, V);
    const T target_logit = row[target] - max;
    const T sum = ReplaceByExp(row, max, T(1), V);
    Scale(row, scale / sum, V);
    row[target] -= scale;
    return static_cast<double>(Eigen::numext::log(sum) - target_logit);
  }
  static void Scale(T* row, T factor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) row[i] *= factor;
  }
  // The zeros that a lower triangular factor needs above the diagonal; see matrix.h.
  static void ClearAfter(T* row, int64_t n, int64_t S) {
    for (int64_t i = n; i < Least(n + kTileRows - 1, S); ++i) row[i] = T(0);
  }
  static void SoftmaxRow(T* row, T scale, int64_t n, int64_t S) {
    const T sum = ReplaceByExp(row, Max(row, n), scale, n);
    Scale(row, T(1) / sum, n);
    ClearAfter(row, n, S);
  }
  // Replaces the gradient of the weights of a row with the gradient of its scores before scaling.
  static void SoftmaxRowBackward(T* d_row, const T* row, T scale, int64_t n, int64_t S) {
    Chunk<T> sum = Chunk<T>::Zero();
    ForChunks<T>(n,
                 [&](int64_t i, auto part) { sum += part.Load(d_row + i, T(0)) * part.Load(row + i, T(0)); });
    const T along = sum.sum();
    ForChunks<T>(n, [&](int64_t i, auto part) {
      part.Store(d_row + i,
                 Chunk<T>((part.Load(d_row + i, T(0)) - along) * part.Load(row + i, T(0)) * scale));
    });
    ClearAfter(d_row, n, S);
  }
};

constinit LayersOfThisKind<float> float_layers;
constinit LayersOfThisKind<double> double_layers;

}  // namespace

const Layers<float>& DDPRUN_LAYERS(float) { return float_layers; }
const Layers<double>& DDPRUN_LAYERS(double) { return double_layers; }

}  // namespace ddprun::train
