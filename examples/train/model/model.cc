#include "examples/train/model/model.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ddprun::train {

template <typename T>
Gpt<T>::Gpt(const ModelConfig& config, const Layers<T>& layers)
    : config_(config),
      layers_(layers),
      tensors_(ParameterTensors(config)),
      parameters_(NumParameters(tensors_)) {
  const size_t S = config.context, C = config.width, H = config.heads;
  const auto make = [](size_t num_elems) { return Buffer<T>(num_elems); };
  embedded_ = make(S * C);
  blocks_.resize(config.layers);
  for (BlockValues& b : blocks_) {
    b = {.norm1 = make(S * C),
         .mean1 = make(S),
         .rstd1 = make(S),
         .qkv = make(S * 3 * C),
         .att = make(H * S * S),
         .mixed = make(S * C),
         .middle = make(S * C),
         .norm2 = make(S * C),
         .mean2 = make(S),
         .rstd2 = make(S),
         .up = make(S * 4 * C),
         .active = make(S * 4 * C),
         .out = make(S * C)};
  }
  final_ = make(S * C);
  mean_ = make(S);
  rstd_ = make(S);
  logits_ = make(S * kVocab);
  d_stream_ = make(S * C);
  d_branch_ = make(S * C);
  d_wide_ = make(S * 4 * C);
  d_active_ = make(S * 4 * C);
  d_att_ = make(S * S);
}

template <typename T>
void Gpt<T>::Initialize(CounterRng& rng) {
  for (const TensorSpec& tensor : tensors_) {
    double deviation = 0;
    T constant = 0;
    switch (tensor.kind) {
      case TensorKind::kWeight:
        deviation = 0.02;
        break;
      case TensorKind::kProjection:
        deviation = 0.02 / std::sqrt(2.0 * config_.layers);
        break;
      case TensorKind::kGain:
        constant = 1;
        break;
      case TensorKind::kBias:
        break;
    }
    for (T& p : parameters().subspan(tensor.offset, tensor.num_elems)) {
      p = deviation > 0 ? static_cast<T>(deviation * rng.Normal()) : constant;
    }
  }
}

template <typename T>
double Gpt<T>::Forward(std::span<const uint8_t> sequence, T scale) {
  const int S = config_.context, C = config_.width, L = config_.layers;
  const uint8_t* inputs = sequence.data();
  const uint8_t* targets = sequence.data() + 1;

  layers_.EmbedForward(embedded_.data(), inputs, Parameter(TensorIndex::kTokenEmbedding),
                       Parameter(TensorIndex::kPositionEmbedding), S, C);
  const T* stream = embedded_.data();
  for (int layer = 0; layer < L; ++layer) {
    BlockForward(layer, stream);
    stream = blocks_[layer].out.data();
  }
  layers_.NormForward(final_.data(), mean_.data(), rstd_.data(), stream, Parameter(TensorIndex::FinalGain(L)),
                      Parameter(TensorIndex::FinalBias(L)), S, C);
  layers_.LinearForward(logits_.data(), final_.data(), Parameter(TensorIndex::Head(L)), nullptr, S, C,
                        kVocab);
  return layers_.CrossEntropy(logits_.data(), targets, scale, S, kVocab);
}

template <typename T>
void Gpt<T>::BlockForward(int layer, const T* in) {
  const int S = config_.context, C = config_.width;
  BlockValues& b = blocks_[layer];
  const auto param = [&](TensorIndex::Block which) { return Parameter(TensorIndex::InBlock(layer, which)); };

  layers_.NormForward(b.norm1.data(), b.mean1.data(), b.rstd1.data(), in, param(TensorIndex::kNorm1Gain),
                      param(TensorIndex::kNorm1Bias), S, C);
  layers_.LinearForward(b.qkv.data(), b.norm1.data(), param(TensorIndex::kQkvWeight),
                        param(TensorIndex::kQkvBias), S, C, 3 * C);
  layers_.AttentionForward(b.mixed.data(), b.att.data(), b.qkv.data(), S, C, config_.heads);
  layers_.LinearForward(b.middle.data(), b.mixed.data(), param(TensorIndex::kAttProjWeight),
                        param(TensorIndex::kAttProjBias), S, C, C);
  layers_.Add(b.middle.data(), in, int64_t{S} * C);

  layers_.NormForward(b.norm2.data(), b.mean2.data(), b.rstd2.data(), b.middle.data(),
                      param(TensorIndex::kNorm2Gain), param(TensorIndex::kNorm2Bias), S, C);
  layers_.LinearForward(b.up.data(), b.norm2.data(), param(TensorIndex::kUpWeight),
                        param(TensorIndex::kUpBias), S, C, 4 * C);
  layers_.GeluForward(b.active.data(), b.up.data(), S * 4 * C);
  layers_.LinearForward(b.out.data(), b.active.data(), param(TensorIndex::kDownWeight),
                        param(TensorIndex::kDownBias), S, 4 * C, C);
  layers_.Add(b.out.data(), b.middle.data(), int64_t{S} * C);
}

template <typename T>
void Gpt<T>::Backward(std::span<const uint8_t> sequence, std::span<T> grads,
                      FunctionRef<void(size_t tensor)> ready) {
  const int S = config_.context, C = config_.width, L = config_.layers;
  const auto grad = [&](size_t tensor) { return grads.data() + tensors_[tensor].offset; };
  const auto input_of = [&](int layer) {
    return layer == 0 ? embedded_.data() : blocks_[layer - 1].out.data();
  };

  layers_.LinearBackward(d_branch_.data(), grad(TensorIndex::Head(L)), nullptr, logits_.data(), final_.data(),
                         Parameter(TensorIndex::Head(L)), S, C, kVocab);
  ready(TensorIndex::Head(L));
  std::fill_n(d_stream_.data(), d_stream_.size(), T(0));
  layers_.NormBackward(d_stream_.data(), grad(TensorIndex::FinalGain(L)), grad(TensorIndex::FinalBias(L)),
                       d_branch_.data(), input_of(L), mean_.data(), rstd_.data(),
                       Parameter(TensorIndex::FinalGain(L)), S, C);
  ready(TensorIndex::FinalBias(L));
  ready(TensorIndex::FinalGain(L));

  for (int layer = L - 1; layer >= 0; --layer) BlockBackward(layer, input_of(layer), grads.data(), ready);

  layers_.EmbedBackward(grad(TensorIndex::kTokenEmbedding), grad(TensorIndex::kPositionEmbedding),
                        d_stream_.data(), sequence.data(), S, C, kVocab);
  ready(TensorIndex::kPositionEmbedding);
  ready(TensorIndex::kTokenEmbedding);
}

template <typename T>
void Gpt<T>::BlockBackward(int layer, const T* in, T* grads, FunctionRef<void(size_t tensor)> ready) {
  const int S = config_.context, C = config_.width;
  const BlockValues& b = blocks_[layer];
  const auto param = [&](TensorIndex::Block which) { return Parameter(TensorIndex::InBlock(layer, which)); };
  const auto grad = [&](TensorIndex::Block which) {
    return grads + tensors_[TensorIndex::InBlock(layer, which)].offset;
  };
  const auto finish = [&](TensorIndex::Block later, TensorIndex::Block earlier) {
    ready(TensorIndex::InBlock(layer, later));
    ready(TensorIndex::InBlock(layer, earlier));
  };

  layers_.LinearBackward(d_active_.data(), grad(TensorIndex::kDownWeight), grad(TensorIndex::kDownBias),
                         d_stream_.data(), b.active.data(), param(TensorIndex::kDownWeight), S, 4 * C, C);
  finish(TensorIndex::kDownBias, TensorIndex::kDownWeight);
  layers_.GeluBackward(d_wide_.data(), d_active_.data(), b.up.data(), S * 4 * C);
  layers_.LinearBackward(d_branch_.data(), grad(TensorIndex::kUpWeight), grad(TensorIndex::kUpBias),
                         d_wide_.data(), b.norm2.data(), param(TensorIndex::kUpWeight), S, C, 4 * C);
  finish(TensorIndex::kUpBias, TensorIndex::kUpWeight);
  layers_.NormBackward(d_stream_.data(), grad(TensorIndex::kNorm2Gain), grad(TensorIndex::kNorm2Bias),
                       d_branch_.data(), b.middle.data(), b.mean2.data(), b.rstd2.data(),
                       param(TensorIndex::kNorm2Gain), S, C);
  finish(TensorIndex::kNorm2Bias, TensorIndex::kNorm2Gain);

  layers_.LinearBackward(d_branch_.data(), grad(TensorIndex::kAttProjWeight), grad(TensorIndex::kAttProjBias),
                         d_stream_.data(), b.mixed.data(), param(TensorIndex::kAttProjWeight), S, C, C);
  finish(TensorIndex::kAttProjBias, TensorIndex::kAttProjWeight);
  layers_.AttentionBackward(d_wide_.data(), d_att_.data(), d_branch_.data(), b.qkv.data(), b.att.data(), S, C,
                            config_.heads);
  layers_.LinearBackward(d_branch_.data(), grad(TensorIndex::kQkvWeight), grad(TensorIndex::kQkvBias),
                         d_wide_.data(), b.norm1.data(), param(TensorIndex::kQkvWeight), S, C, 3 * C);
  finish(TensorIndex::kQkvBias, TensorIndex::kQkvWeight);
  layers_.NormBackward(d_stream_.data(), grad(TensorIndex::kNorm1Gain), grad(TensorIndex::kNorm1Bias),
                       d_branch_.data(), in, b.mean1.data(), b.rstd1.data(), param(TensorIndex::kNorm1Gain),
                       S, C);
  finish(TensorIndex::kNorm1Bias, TensorIndex::kNorm1Gain);
}

template class Gpt<float>;
template class Gpt<double>;

}  // namespace ddprun::train
