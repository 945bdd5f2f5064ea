// Compiled once for each CPU variant (see BUILD.bazel), with these macros:
//   DDPRUN_LAYERS      name of the function that returns this variant, declared in layers_variants.h
//   DDPRUN_LAYERS_CPU  name of the variant, as a string
//   Eigen              name of Eigen's namespace in this variant
// The namespace differs so that the linker does not merge the Eigen functions of two variants. For the same
// reason, this file avoids inline functions of the standard library that the compiler may choose not to
// inline.

#include "examples/train/model/layers.h"

#include <eigen3/Eigen/Core>
#include <string_view>

#include "examples/train/model/layers_variants.h"

namespace ddprun::train {
namespace {

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using Matrix = Eigen::Map<RowMajor<T>>;
template <typename T>
using ConstMatrix = Eigen::Map<const RowMajor<T>>;
template <typename T>
using Row = Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>>;
template <typename T>
using ConstRow = Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>;
template <typename T>
using Array = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
template <typename T>
using ConstArray = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
// A block of columns of a wider matrix.
template <typename T>
using Columns = Eigen::Map<RowMajor<T>, 0, Eigen::OuterStride<>>;
template <typename T>
using ConstColumns = Eigen::Map<const RowMajor<T>, 0, Eigen::OuterStride<>>;

constexpr double kNormEpsilon = 1e-5;
constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kGeluCube = 0.044715;

template <typename T>
class LayersOfThisKind final : public Layers<T> {
 public:
  void EmbedForward(T* x, const uint8_t* tokens, const T* token_table, const T* position_table, int S,
                    int C) const override {
    for (int s = 0; s < S; ++s) {
      Row<T>(x + s * C, C) =
          ConstRow<T>(token_table + tokens[s] * C, C) + ConstRow<T>(position_table + s * C, C);
    }
  }

  void EmbedBackward(T* d_token_table, T* d_position_table, const T* d_x, const uint8_t* tokens, int S, int C,
                     int V) const override {
    Matrix<T>(d_position_table, S, C) = ConstMatrix<T>(d_x, S, C);
    Matrix<T>(d_token_table, V, C).setZero();
    for (int s = 0; s < S; ++s) Row<T>(d_token_table + tokens[s] * C, C) += ConstRow<T>(d_x + s * C, C);
  }

  void NormForward(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, int S,
                   int C) const override {
    const ConstArray<T> gains(gain, C), biases(bias, C);
    for (int s = 0; s < S; ++s) {
      const ConstArray<T> in(x + s * C, C);
      mean[s] = in.mean();
      const T variance = (in - mean[s]).square().mean();
      rstd[s] = T(1) / Eigen::numext::sqrt(variance + T(kNormEpsilon));
      Array<T>(y + s * C, C) = (in - mean[s]) * rstd[s] * gains + biases;
    }
  }

  void NormBackward(T* d_x, T* d_gain, T* d_bias, const T* d_y, const T* x, const T* mean, const T* rstd,
                    const T* gain, int S, int C) const override {
    const ConstArray<T> gains(gain, C);
    Array<T> d_gains(d_gain, C), d_biases(d_bias, C);
    d_gains.setZero();
    d_biases.setZero();
    Eigen::Array<T, Eigen::Dynamic, 1> normal(C), d_normal(C);
    for (int s = 0; s < S; ++s) {
      const ConstArray<T> d_out(d_y + s * C, C);
      normal = (ConstArray<T>(x + s * C, C) - mean[s]) * rstd[s];
      d_normal = d_out * gains;
      d_gains += d_out * normal;
      d_biases += d_out;
      // Removes the components along mean and variance, which normalization cancels.
      const T along_mean = d_normal.mean();
      const T along_normal = (d_normal * normal).mean();
      Array<T>(d_x + s * C, C) += (d_normal - along_mean - normal * along_normal) * rstd[s];
    }
  }

  void LinearForward(T* y, const T* x, const T* weight, const T* bias, int S, int I, int O) const override {
    Matrix<T> out(y, S, O);
    out.noalias() = ConstMatrix<T>(x, S, I) * ConstMatrix<T>(weight, O, I).transpose();
    if (bias != nullptr) out.rowwise() += ConstRow<T>(bias, O);
  }

  void LinearBackward(T* d_x, T* d_weight, T* d_bias, const T* d_y, const T* x, const T* weight, int S, int I,
                      int O) const override {
    const ConstMatrix<T> d_out(d_y, S, O);
    Matrix<T>(d_x, S, I).noalias() = d_out * ConstMatrix<T>(weight, O, I);
    Matrix<T>(d_weight, O, I).noalias() = d_out.transpose() * ConstMatrix<T>(x, S, I);
    if (d_bias == nullptr) return;
    Row<T> d_biases(d_bias, O);
    d_biases.setZero();
    for (int s = 0; s < S; ++s) d_biases += d_out.row(s);
  }

  void AttentionForward(T* y, T* att, const T* qkv, int S, int C, int H) const override {
    const int D = C / H;
    const T scale = T(1) / Eigen::numext::sqrt(T(D));
    const Eigen::OuterStride<> wide(3 * C);
    for (int h = 0; h < H; ++h) {
      const ConstColumns<T> q(qkv + h * D, S, D, wide);
      const ConstColumns<T> k(qkv + C + h * D, S, D, wide);
      const ConstColumns<T> v(qkv + 2 * C + h * D, S, D, wide);
      Matrix<T> weights(att + int64_t{h} * S * S, S, S);
      weights.noalias() = q * k.transpose();
      weights *= scale;
      for (int s = 0; s < S; ++s) {
        auto seen = weights.row(s).head(s + 1).array();
        const T max = seen.maxCoeff();
        seen = (seen - max).exp();
        seen *= T(1) / seen.sum();
        weights.row(s).tail(S - s - 1).setZero();
      }
      Columns<T>(y + h * D, S, D, Eigen::OuterStride<>(C)).noalias() = weights * v;
    }
  }

  void AttentionBackward(T* d_qkv, T* scratch, const T* d_y, const T* qkv, const T* att, int S, int C,
                         int H) const override {
    const int D = C / H;
    const T scale = T(1) / Eigen::numext::sqrt(T(D));
    const Eigen::OuterStride<> wide(3 * C);
    Matrix<T> d_scores(scratch, S, S);
    for (int h = 0; h < H; ++h) {
      const ConstColumns<T> q(qkv + h * D, S, D, wide);
      const ConstColumns<T> k(qkv + C + h * D, S, D, wide);
      const ConstColumns<T> v(qkv + 2 * C + h * D, S, D, wide);
      Columns<T> d_q(d_qkv + h * D, S, D, wide);
      Columns<T> d_k(d_qkv + C + h * D, S, D, wide);
      Columns<T> d_v(d_qkv + 2 * C + h * D, S, D, wide);
      const ConstColumns<T> d_out(d_y + h * D, S, D, Eigen::OuterStride<>(C));
      const ConstMatrix<T> weights(att + int64_t{h} * S * S, S, S);

      d_v.noalias() = weights.transpose() * d_out;
      d_scores.noalias() = d_out * v.transpose();
      for (int s = 0; s < S; ++s) {  // gradient through the softmax; masked positions have weight 0
        auto d_row = d_scores.row(s).array();
        const auto row = weights.row(s).array();
        const T along = (d_row * row).sum();
        d_row = (d_row - along) * row * scale;
      }
      d_q.noalias() = d_scores * k;
      d_k.noalias() = d_scores.transpose() * q;
    }
  }

  void GeluForward(T* y, const T* x, int n) const override {
    const ConstArray<T> in(x, n);
    Array<T>(y, n) = T(0.5) * in * (T(1) + (T(kGeluScale) * (in + T(kGeluCube) * in.cube())).tanh());
  }

  void GeluBackward(T* d_x, const T* d_y, const T* x, int n) const override {
    const ConstArray<T> in(x, n);
    Array<T> d_in(d_x, n);
    d_in = (T(kGeluScale) * (in + T(kGeluCube) * in.cube())).tanh();
    d_in =
        ConstArray<T>(d_y, n) * T(0.5) *
        (T(1) + d_in + in * (T(1) - d_in.square()) * T(kGeluScale) * (T(1) + T(3 * kGeluCube) * in.square()));
  }

  void Add(T* x, const T* y, int64_t n) const override { Array<T>(x, n) += ConstArray<T>(y, n); }

  double CrossEntropy(T* logits, const uint8_t* targets, T scale, int S, int V) const override {
    double loss = 0;
    for (int s = 0; s < S; ++s) {
      Array<T> row(logits + s * V, V);
      const T max = row.maxCoeff();
      const T target = row[targets[s]] - max;
      row = (row - max).exp();
      const T sum = row.sum();
      loss += static_cast<double>(Eigen::numext::log(sum) - target);
      row *= scale / sum;
      row[targets[s]] -= scale;
    }
    return loss * static_cast<double>(scale);
  }

  [[nodiscard]] std::string_view cpu() const override { return DDPRUN_LAYERS_CPU; }
};

// Eigen splits long sums of products according to the CPU's cache sizes, so results would depend on the CPU
// model. Fixed sizes prevent this; 32 KiB is the most common L1 size.
void PinBlocks() {
  [[maybe_unused]] static const bool pinned = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
}

constinit LayersOfThisKind<float> float_layers;
constinit LayersOfThisKind<double> double_layers;

}  // namespace

const Layers<float>& DDPRUN_LAYERS(float) {
  PinBlocks();
  return float_layers;
}
const Layers<double>& DDPRUN_LAYERS(double) {
  PinBlocks();
  return double_layers;
}

}  // namespace ddprun::train
