#include "examples/train/model/model.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace ddprun::train {

template <typename T>
Gpt<T>::Gpt(const ModelConfig& config, int max_batch, const Layers<T>& layers)
    : config_(config),
      layers_(layers),
      tensors_(ParameterTensors(config)),
      parameters_(NumParameters(tensors_)) {
  const size_t S = config.context, C = config.width, H = config.heads, N = max_batch * S;
  const auto make = [](size_t num_elems) { return Buffer<T>(num_elems); };
  inputs_ = Buffer<uint8_t>(N);
  targets_ = Buffer<uint8_t>(N);
  embedded_ = make(N * C);
  blocks_.resize(config.layers);
  for (BlockValues& b : blocks_) {
    b = {.norm1 = make(N * C),
         .mean1 = make(N),
         .rstd1 = make(N),
         .qkv = make(N * 3 * C),
         .att = make(N * H * S),
         .mixed = make(N * C),
         .middle = make(N * C),
         .norm2 = make(N * C),
         .mean2 = make(N),
         .rstd2 = make(N),
         .up = make(N * 4 * C),
         .active = make(N * 4 * C),
         .out = make(N * C)};
  }
  final_ = make(N * C);
  mean_ = make(N);
  rstd_ = make(N);
  logits_ = make(N * kVocab);
  d_stream_ = make(N * C);
  d_branch_ = make(N * C);
  d_wide_ = make(N * 4 * C);
}

template <typename T>
void InitializeParameters(const ModelConfig& config, const std::vector<TensorSpec>& tensors, CounterRng& rng,
                          std::span<T> parameters) {
  for (const TensorSpec& tensor : tensors) {
    double deviation = 0;
    T constant = 0;
    switch (tensor.kind) {
      case TensorKind::kWeight:
        deviation = 0.02;
        break;
      case TensorKind::kProjection:
        deviation = 0.02 / std::sqrt(2.0 * config.layers);
        break;
      case TensorKind::kGain:
        constant = 1;
        break;
      case TensorKind::kBias:
        break;
    }
    for (T& p : parameters.subspan(tensor.offset, tensor.num_elems)) {
      p = deviation > 0 ? static_cast<T>(deviation * rng.Normal()) : constant;
    }
  }
}

template <typename T>
void Gpt<T>::Forward(std::span<const std::span<const uint8_t>> batch, T scale, std::span<double> losses) {
  const int S = config_.context, C = config_.width, L = config_.layers;
  batch_ = static_cast<int>(batch.size());
  for (size_t b = 0; b < batch.size(); ++b) {
    std::copy_n(batch[b].begin(), S, inputs_.data() + b * S);
    std::copy_n(batch[b].begin() + 1, S, targets_.data() + b * S);
  }

  layers_.EmbedForward(embedded_.data(), inputs_.data(), Parameter(TensorIndex::kTokenEmbedding),
                       Parameter(TensorIndex::kPositionEmbedding), batch_, S, C);
  const T* stream = embedded_.data();
  for (int layer = 0; layer < L; ++layer) {
    BlockForward(layer, stream);
    stream = blocks_[layer].out.data();
  }
  layers_.NormForward(final_.data(), mean_.data(), rstd_.data(), stream, Parameter(TensorIndex::FinalGain(L)),
                      Parameter(TensorIndex::FinalBias(L)), num_positions(), C);
  layers_.LinearForward(logits_.data(), final_.data(), Parameter(TensorIndex::Head(L)), nullptr, nullptr,
                        num_positions(), C, kVocab);
  layers_.CrossEntropy(losses.data(), logits_.data(), targets_.data(), scale, batch_, S, kVocab);
}

template <typename T>
void Gpt<T>::BlockForward(int layer, const T* in) {
  const int S = config_.context, C = config_.width, N = num_positions();
  BlockValues& b = blocks_[layer];
  const auto param = [&](TensorIndex::Block which) { return Parameter(TensorIndex::InBlock(layer, which)); };

  layers_.NormForward(b.norm1.data(), b.mean1.data(), b.rstd1.data(), in, param(TensorIndex::kNorm1Gain),
                      param(TensorIndex::kNorm1Bias), N, C);
  layers_.LinearForward(b.qkv.data(), b.norm1.data(), param(TensorIndex::kQkvWeight),
                        param(TensorIndex::kQkvBias), nullptr, N, C, 3 * C);
  layers_.AttentionForward(b.mixed.data(), b.att.data(), b.qkv.data(), scratch_, batch_, S, C, config_.heads);
  layers_.LinearForward(b.middle.data(), b.mixed.data(), param(TensorIndex::kAttProjWeight),
                        param(TensorIndex::kAttProjBias), in, N, C, C);

  layers_.NormForward(b.norm2.data(), b.mean2.data(), b.rstd2.data(), b.middle.data(),
                      param(TensorIndex::kNorm2Gain), param(TensorIndex::kNorm2Bias), N, C);
  layers_.LinearForward(b.up.data(), b.norm2.data(), param(TensorIndex::kUpWeight),
                        param(TensorIndex::kUpBias), nullptr, N, C, 4 * C);
  layers_.GeluForward(b.active.data(), b.up.data(), int64_t{N} * 4 * C);
  layers_.LinearForward(b.out.data(), b.active.data(), param(TensorIndex::kDownWeight),
                        param(TensorIndex::kDownBias), b.middle.data(), N, 4 * C, C);
}

template <typename T>
void Gpt<T>::Backward(FunctionRef<T*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready) {
  const int S = config_.context, C = config_.width, L = config_.layers, N = num_positions();
  const Sink sink{grad, ready};
  const auto input_of = [&](int layer) {
    return layer == 0 ? embedded_.data() : blocks_[layer - 1].out.data();
  };

  const size_t head = TensorIndex::Head(L);
  layers_.LinearBackward(grad(head), nullptr, logits_.data(), final_.data(), scratch_, batch_, S, C, kVocab);
  ready(head);
  layers_.LinearBackwardInput(d_branch_.data(), logits_.data(), Parameter(head), N, C, kVocab);
  std::fill_n(d_stream_.data(), int64_t{N} * C, T(0));
  NormBackward(TensorIndex::FinalBias(L), input_of(L), mean_, rstd_, sink);

  for (int layer = L - 1; layer >= 0; --layer) BlockBackward(layer, input_of(layer), sink);

  layers_.EmbedBackward(grad(TensorIndex::kTokenEmbedding), grad(TensorIndex::kPositionEmbedding),
                        d_stream_.data(), inputs_.data(), scratch_, batch_, S, C, kVocab);
  ready(TensorIndex::kPositionEmbedding);
  ready(TensorIndex::kTokenEmbedding);
}

template <typename T>
void Gpt<T>::BlockBackward(int layer, const T* in, const Sink& sink) {
  const int S = config_.context, C = config_.width, N = num_positions();
  const BlockValues& b = blocks_[layer];
  const auto param = [&](TensorIndex::Block which) { return Parameter(TensorIndex::InBlock(layer, which)); };
  const auto index = [&](TensorIndex::Block which) { return TensorIndex::InBlock(layer, which); };

  LinearBackward(index(TensorIndex::kDownBias), d_stream_.data(), b.active.data(), 4 * C, C, sink);
  layers_.LinearBackwardInput(d_wide_.data(), d_stream_.data(), param(TensorIndex::kDownWeight), N, 4 * C, C);
  layers_.GeluBackward(d_wide_.data(), b.up.data(), int64_t{N} * 4 * C);
  LinearBackward(index(TensorIndex::kUpBias), d_wide_.data(), b.norm2.data(), C, 4 * C, sink);
  layers_.LinearBackwardInput(d_branch_.data(), d_wide_.data(), param(TensorIndex::kUpWeight), N, C, 4 * C);
  NormBackward(index(TensorIndex::kNorm2Bias), b.middle.data(), b.mean2, b.rstd2, sink);

  LinearBackward(index(TensorIndex::kAttProjBias), d_stream_.data(), b.mixed.data(), C, C, sink);
  layers_.LinearBackwardInput(d_branch_.data(), d_stream_.data(), param(TensorIndex::kAttProjWeight), N, C,
                              C);
  layers_.AttentionBackward(d_wide_.data(), d_branch_.data(), b.qkv.data(), b.att.data(), scratch_, batch_, S,
                            C, config_.heads);
  LinearBackward(index(TensorIndex::kQkvBias), d_wide_.data(), b.norm1.data(), C, 3 * C, sink);
  layers_.LinearBackwardInput(d_branch_.data(), d_wide_.data(), param(TensorIndex::kQkvWeight), N, C, 3 * C);
  NormBackward(index(TensorIndex::kNorm1Bias), in, b.mean1, b.rstd1, sink);
}

template <typename T>
void Gpt<T>::LinearBackward(size_t bias, const T* d_y, const T* x, int inputs, int outputs,
                            const Sink& sink) {
  const size_t weight = bias - 1;
  layers_.LinearBackward(sink.grad(weight), sink.grad(bias), d_y, x, scratch_, batch_, config_.context,
                         inputs, outputs);
  sink.ready(bias);
  sink.ready(weight);
}

template <typename T>
void Gpt<T>::NormBackward(size_t bias, const T* x, const Buffer<T>& mean, const Buffer<T>& rstd,
                          const Sink& sink) {
  const size_t gain = bias - 1;
  layers_.NormBackward(d_stream_.data(), sink.grad(gain), sink.grad(bias), d_branch_.data(), x, mean.data(),
                       rstd.data(), Parameter(gain), scratch_, batch_, config_.context, config_.width);
  sink.ready(bias);
  sink.ready(gain);
}

template void InitializeParameters(const ModelConfig&, const std::vector<TensorSpec>&, CounterRng&,
                                   std::span<float>);
template void InitializeParameters(const ModelConfig&, const std::vector<TensorSpec>&, CounterRng&,
                                   std::span<double>);
template class Gpt<float>;
template class Gpt<double>;

}  // namespace ddprun::train
