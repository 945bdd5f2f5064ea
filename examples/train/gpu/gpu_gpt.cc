#include "examples/train/gpu/gpu_gpt.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

// A pass that takes longer is taken for a GPU that hangs.
constexpr Duration kPassLimit = seconds(300);
constexpr Duration kExitLimit = seconds(10);

template <typename T>
T* As(const PinnedMemory& memory) {
  return static_cast<T*>(memory.data());
}

}  // namespace

GpuGpt::GpuGpt(std::shared_ptr<const CudaContext> context, const GpuGptOptions& options, CudaStream stream,
               CudaEvent losses_known)
    : context_(std::move(context)),
      options_(options),
      S_(options.config.context),
      C_(options.config.width),
      H_(options.config.heads),
      D_(C_ / H_),
      tensors_(ParameterTensors(options.config)),
      stream_(std::move(stream)),
      losses_known_(std::move(losses_known)) {}

GpuGpt::~GpuGpt() { (void)stream_.Await(DeadlineAfter(kExitLimit), "the model"); }

StatusOr<std::unique_ptr<GpuGpt>> GpuGpt::Create(std::shared_ptr<const CudaContext> context,
                                                 const CublasLibrary* cublas, const GpuGptOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create(context));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent losses_known, CudaEvent::Create(context));
  std::unique_ptr<GpuGpt> gpt(new GpuGpt(context, options, std::move(stream), std::move(losses_known)));
  DDPRUN_ASSIGN_OR_RETURN(gpt->kernels_, ModelKernels::Load(context, gpt->stream()));
  DDPRUN_ASSIGN_OR_RETURN(gpt->products_, Products::Create(context, cublas, gpt->stream()));
  DDPRUN_RETURN_IF_ERROR(
      gpt->Allocate(),
      StrCat("the memory of the model: give more workers, a larger --accumulate or a smaller model"));
  return gpt;
}

Status GpuGpt::Allocate() {
  const int64_t B = options_.max_batch, N = B * S_;
  Status status;
  const auto make = [&](int64_t num_elems) {
    StatusOr<Array> array = Array::Allocate(context_, num_elems);
    status.Update(array.status());
    return array.ok() ? *std::move(array) : Array();
  };
  parameters_ = make(static_cast<int64_t>(NumParameters(tensors_)));
  embedded_ = make(N * C_);
  for (int layer = 0; layer < options_.config.layers && status.ok(); ++layer) {
    blocks_.push_back({.norm1 = make(N * C_),
                       .mean1 = make(N),
                       .rstd1 = make(N),
                       .qkv = make(N * 3 * C_),
                       .att = make(N * H_ * S_),
                       .mixed = make(N * C_),
                       .middle = make(N * C_),
                       .norm2 = make(N * C_),
                       .mean2 = make(N),
                       .rstd2 = make(N),
                       .up = make(N * 4 * C_),
                       .active = make(N * 4 * C_),
                       .out = make(N * C_)});
  }
  final_ = make(N * C_);
  mean_ = make(N);
  rstd_ = make(N);
  logits_ = make(N * kVocab);
  d_stream_ = make(N * C_);
  d_branch_ = make(N * C_);
  d_wide_ = make(N * 4 * C_);
  d_att_ = make(N * H_ * S_);
  terms_ = make(B * C_ * std::max<int64_t>(4 * C_, kVocab));
  DDPRUN_RETURN_IF_ERROR(status);
  DDPRUN_ASSIGN_OR_RETURN(inputs_, DeviceArray<uint8_t>::Allocate(context_, N));
  DDPRUN_ASSIGN_OR_RETURN(targets_, DeviceArray<uint8_t>::Allocate(context_, N));
  DDPRUN_ASSIGN_OR_RETURN(row_losses_, DeviceArray<double>::Allocate(context_, N));
  DDPRUN_ASSIGN_OR_RETURN(losses_, DeviceArray<double>::Allocate(context_, B));
  const int64_t most = options_.max_sequences;
  DDPRUN_ASSIGN_OR_RETURN(pinned_inputs_, PinnedMemory::Allocate(context_, most * S_));
  DDPRUN_ASSIGN_OR_RETURN(pinned_targets_, PinnedMemory::Allocate(context_, most * S_));
  DDPRUN_ASSIGN_OR_RETURN(pinned_losses_,
                          PinnedMemory::Allocate(context_, most * static_cast<int64_t>(sizeof(double))));
  return OkStatus();
}

void GpuGpt::CopyTokens(std::span<const std::span<const uint8_t>> batch) {
  uint8_t* const inputs = As<uint8_t>(pinned_inputs_) + num_sequences_ * S_;
  uint8_t* const targets = As<uint8_t>(pinned_targets_) + num_sequences_ * S_;
  for (int64_t b = 0; b < batch_; ++b) {
    std::copy_n(batch[b].begin(), S_, inputs + b * S_);
    std::copy_n(batch[b].begin() + 1, S_, targets + b * S_);
  }
  Keep(CopyToDevice(*context_, inputs_.data(), inputs, num_positions(), stream()));
  Keep(CopyToDevice(*context_, targets_.data(), targets, num_positions(), stream()));
}

Status GpuGpt::Forward(std::span<const std::span<const uint8_t>> batch, float scale) {
  batch_ = static_cast<int64_t>(batch.size());
  DDPRUN_CHECK(
      batch_ >= 1 && batch_ <= options_.max_batch && num_sequences_ + batch_ <= options_.max_sequences,
      batch_ << " sequences after " << num_sequences_);
  const int64_t N = num_positions();
  const int L = options_.config.layers;
  CopyTokens(batch);
  Keep(kernels_->EmbedForward(embedded_.data(), inputs_.data(), Parameter(TensorIndex::kTokenEmbedding),
                              Parameter(TensorIndex::kPositionEmbedding), N, S_, C_));
  const float* residual_stream = embedded_.data();
  for (int layer = 0; layer < L; ++layer) {
    BlockForward(layer, residual_stream);
    residual_stream = blocks_[layer].out.data();
  }
  Keep(kernels_->NormForward(final_.data(), mean_.data(), rstd_.data(), residual_stream,
                             Parameter(TensorIndex::FinalGain(L)), Parameter(TensorIndex::FinalBias(L)), N,
                             C_));
  Keep(products_->Multiply({logits_.data(), kVocab}, {final_.data(), C_},
                           {Parameter(TensorIndex::Head(L)), C_, /*is_transposed=*/true}, {N, kVocab, C_}));
  Keep(kernels_->CrossEntropyRows(row_losses_.data(), logits_.data(), targets_.data(), scale, N, kVocab));
  Keep(kernels_->SumLosses(losses_.data(), row_losses_.data(), scale, batch_, S_));
  Keep(CopyToHost(*context_, As<double>(pinned_losses_) + num_sequences_, losses_.data(),
                  batch_ * static_cast<int64_t>(sizeof(double)), stream()));
  Keep(losses_known_.Record(stream()));
  num_sequences_ += batch_;
  return first_error_;
}

void GpuGpt::BlockForward(int layer, const float* in) {
  const int64_t N = num_positions();
  const BlockValues& b = blocks_[layer];
  const auto index = [&](TensorIndex::Block which) { return TensorIndex::InBlock(layer, which); };

  Keep(kernels_->NormForward(b.norm1.data(), b.mean1.data(), b.rstd1.data(), in,
                             Parameter(index(TensorIndex::kNorm1Gain)),
                             Parameter(index(TensorIndex::kNorm1Bias)), N, C_));
  LinearForward(b.qkv.data(), b.norm1.data(), index(TensorIndex::kQkvWeight), nullptr, C_, 3 * C_);
  AttentionForward(b);
  LinearForward(b.middle.data(), b.mixed.data(), index(TensorIndex::kAttProjWeight), in, C_, C_);

  Keep(kernels_->NormForward(b.norm2.data(), b.mean2.data(), b.rstd2.data(), b.middle.data(),
                             Parameter(index(TensorIndex::kNorm2Gain)),
                             Parameter(index(TensorIndex::kNorm2Bias)), N, C_));
  LinearForward(b.up.data(), b.norm2.data(), index(TensorIndex::kUpWeight), nullptr, C_, 4 * C_);
  Keep(kernels_->GeluForward(b.active.data(), b.up.data(), N * 4 * C_));
  LinearForward(b.out.data(), b.active.data(), index(TensorIndex::kDownWeight), b.middle.data(), 4 * C_, C_);
}

void GpuGpt::LinearForward(float* y, const float* x, size_t weight, const float* residual, int64_t inputs,
                           int64_t outputs) {
  const int64_t N = num_positions();
  Keep(products_->Multiply({y, outputs}, {x, inputs}, {Parameter(weight), inputs, /*is_transposed=*/true},
                           {N, outputs, inputs}));
  Keep(kernels_->AddBias(y, Parameter(weight + 1), residual, N, outputs));
}

// Each product is a batch of one head of all sequences: their matrices are equally far apart.
void GpuGpt::AttentionForward(const BlockValues& b) {
  const int64_t wide = 3 * C_, of_sequence = S_ * wide, att_of_sequence = H_ * S_ * S_;
  for (int64_t h = 0; h < H_; ++h) {
    const float *q = b.qkv.data() + h * D_, *k = q + C_;
    Keep(products_->MultiplyBatch({b.att.data() + h * S_ * S_, S_, att_of_sequence},
                                  {q, wide, false, of_sequence}, {k, wide, true, of_sequence}, {S_, S_, D_},
                                  batch_));
  }
  Keep(kernels_->CausalSoftmax(b.att.data(), 1 / std::sqrt(static_cast<float>(D_)), batch_ * H_, S_));
  for (int64_t h = 0; h < H_; ++h) {
    const float* v = b.qkv.data() + h * D_ + 2 * C_;
    Keep(products_->MultiplyBatch({b.mixed.data() + h * D_, C_, S_ * C_},
                                  {b.att.data() + h * S_ * S_, S_, false, att_of_sequence},
                                  {v, wide, false, of_sequence}, {S_, D_, S_}, batch_));
  }
}

Status GpuGpt::Backward(FunctionRef<float*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready) {
  const int64_t N = num_positions();
  const int L = options_.config.layers;
  const Sink sink{grad, ready};
  const auto input_of = [&](int layer) {
    return layer == 0 ? embedded_.data() : blocks_[layer - 1].out.data();
  };

  const size_t head = TensorIndex::Head(L);
  WeightBackward(grad(head), logits_.data(), final_.data(), C_, kVocab);
  ready(head);
  LinearBackwardInput(d_branch_.data(), logits_.data(), head, C_, kVocab);
  Keep(FillBytes(*context_, d_stream_.data(), 0, N * C_ * static_cast<int64_t>(sizeof(float)), stream()));
  NormBackward(TensorIndex::FinalBias(L), input_of(L), mean_, rstd_, sink);

  for (int layer = L - 1; layer >= 0; --layer) BlockBackward(layer, input_of(layer), sink);

  Keep(kernels_->SumTerms(grad(TensorIndex::kPositionEmbedding), d_stream_.data(), batch_, S_ * C_));
  ready(TensorIndex::kPositionEmbedding);
  Keep(kernels_->EmbedTokensBackward(grad(TensorIndex::kTokenEmbedding), d_stream_.data(), inputs_.data(),
                                     batch_, S_, C_, kVocab));
  ready(TensorIndex::kTokenEmbedding);
  return first_error_;
}

void GpuGpt::BlockBackward(int layer, const float* in, const Sink& sink) {
  const int64_t N = num_positions();
  const BlockValues& b = blocks_[layer];
  const auto index = [&](TensorIndex::Block which) { return TensorIndex::InBlock(layer, which); };

  LinearBackward(index(TensorIndex::kDownBias), d_stream_.data(), b.active.data(), 4 * C_, C_, sink);
  LinearBackwardInput(d_wide_.data(), d_stream_.data(), index(TensorIndex::kDownWeight), 4 * C_, C_);
  Keep(kernels_->GeluBackward(d_wide_.data(), b.up.data(), N * 4 * C_));
  LinearBackward(index(TensorIndex::kUpBias), d_wide_.data(), b.norm2.data(), C_, 4 * C_, sink);
  LinearBackwardInput(d_branch_.data(), d_wide_.data(), index(TensorIndex::kUpWeight), C_, 4 * C_);
  NormBackward(index(TensorIndex::kNorm2Bias), b.middle.data(), b.mean2, b.rstd2, sink);

  LinearBackward(index(TensorIndex::kAttProjBias), d_stream_.data(), b.mixed.data(), C_, C_, sink);
  LinearBackwardInput(d_branch_.data(), d_stream_.data(), index(TensorIndex::kAttProjWeight), C_, C_);
  AttentionBackward(b);
  LinearBackward(index(TensorIndex::kQkvBias), d_wide_.data(), b.norm1.data(), C_, 3 * C_, sink);
  LinearBackwardInput(d_branch_.data(), d_wide_.data(), index(TensorIndex::kQkvWeight), C_, 3 * C_);
  NormBackward(index(TensorIndex::kNorm1Bias), in, b.mean1, b.rstd1, sink);
}

// From d_branch_ [N,C] to d_wide_ [N,3C].
void GpuGpt::AttentionBackward(const BlockValues& b) {
  const int64_t wide = 3 * C_, of_sequence = S_ * wide, att_of_sequence = H_ * S_ * S_;
  for (int64_t h = 0; h < H_; ++h) {
    const Factor d_y{d_branch_.data() + h * D_, C_, false, S_ * C_};
    const Factor att_transposed{b.att.data() + h * S_ * S_, S_, true, att_of_sequence};
    const Factor v_transposed{b.qkv.data() + h * D_ + 2 * C_, wide, true, of_sequence};
    Keep(products_->MultiplyBatch({d_wide_.data() + h * D_ + 2 * C_, wide, of_sequence}, att_transposed, d_y,
                                  {S_, D_, S_}, batch_));
    Keep(products_->MultiplyBatch({d_att_.data() + h * S_ * S_, S_, att_of_sequence}, d_y, v_transposed,
                                  {S_, S_, D_}, batch_));
  }
  Keep(kernels_->CausalSoftmaxBackward(d_att_.data(), b.att.data(), 1 / std::sqrt(static_cast<float>(D_)),
                                       batch_ * H_, S_));
  for (int64_t h = 0; h < H_; ++h) {
    const Factor q{b.qkv.data() + h * D_, wide, false, of_sequence};
    const Factor k{q.data + C_, wide, false, of_sequence};
    const Factor d_scores{d_att_.data() + h * S_ * S_, S_, false, att_of_sequence};
    Factor d_scores_transposed = d_scores;
    d_scores_transposed.is_transposed = true;
    float* const d_q = d_wide_.data() + h * D_;
    Keep(products_->MultiplyBatch({d_q, wide, of_sequence}, d_scores, k, {S_, D_, S_}, batch_));
    Keep(products_->MultiplyBatch({d_q + C_, wide, of_sequence}, d_scores_transposed, q, {S_, D_, S_},
                                  batch_));
  }
}

void GpuGpt::SumTerms(float* gradient, const float* terms, int64_t count) {
  if (batch_ > 1) Keep(kernels_->SumTerms(gradient, terms, batch_, count));
}

// One product for each sequence, so that a gradient is the same sum for each division of the batch among ranks and passes.
void GpuGpt::WeightBackward(float* d_weight, const float* d_y, const float* x, int64_t inputs,
                            int64_t outputs) {
  float* const terms = TermsOf(d_weight);
  Keep(products_->MultiplyBatch({terms, inputs, outputs * inputs}, {d_y, outputs, true, S_ * outputs},
                                {x, inputs, false, S_ * inputs}, {outputs, inputs, S_}, batch_));
  SumTerms(d_weight, terms, outputs * inputs);
}

void GpuGpt::LinearBackward(size_t bias, const float* d_y, const float* x, int64_t inputs, int64_t outputs,
                            const Sink& sink) {
  const size_t weight = bias - 1;
  WeightBackward(sink.grad(weight), d_y, x, inputs, outputs);
  float* const d_bias = sink.grad(bias);
  float* const terms = TermsOf(d_bias);
  Keep(kernels_->BiasBackward(terms, d_y, batch_, S_, outputs));
  SumTerms(d_bias, terms, outputs);
  sink.ready(bias);
  sink.ready(weight);
}

void GpuGpt::LinearBackwardInput(float* d_x, const float* d_y, size_t weight, int64_t inputs,
                                 int64_t outputs) {
  Keep(products_->Multiply({d_x, inputs}, {d_y, outputs}, {Parameter(weight), inputs},
                           {num_positions(), inputs, outputs}));
}

void GpuGpt::NormBackward(size_t bias, const float* x, const Array& mean, const Array& rstd,
                          const Sink& sink) {
  const size_t gain = bias - 1;
  const float* const d_y = d_branch_.data();
  Keep(kernels_->NormBackwardInput(d_stream_.data(), d_y, x, mean.data(), rstd.data(), Parameter(gain),
                                   num_positions(), C_));
  float* const d_gains = TermsOf(sink.grad(gain));
  float* const d_biases = TermsOf(sink.grad(bias), batch_ * C_);
  Keep(kernels_->NormBackwardParameters(d_gains, d_biases, d_y, x, mean.data(), rstd.data(), batch_, S_, C_));
  SumTerms(sink.grad(gain), d_gains, C_);
  SumTerms(sink.grad(bias), d_biases, C_);
  sink.ready(bias);
  sink.ready(gain);
}

StatusOr<std::span<const double>> GpuGpt::Losses() {
  DDPRUN_RETURN_IF_ERROR(first_error_);
  DDPRUN_RETURN_IF_ERROR(losses_known_.Await(DeadlineAfter(kPassLimit), "the forward pass"));
  return std::span<const double>(As<double>(pinned_losses_),
                                 static_cast<size_t>(std::exchange(num_sequences_, 0)));
}

}  // namespace ddprun::train
