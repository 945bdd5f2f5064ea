#include "examples/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/time.h"
#include "ddprun/status.h"
#include "examples/train/model/layers.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/optim/adamw.h"
#include "worker_sdk/optim/optimizer_state.h"
#include "worker_sdk/optim/sgd.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun::train {
namespace {

// Reads the attribute "loss". Returns false if it is missing or not a number.
bool ReadLoss(const Snapshot& snapshot, double* loss) {
  const auto found = snapshot.attributes.find("loss");
  if (found == snapshot.attributes.end() || found->second.empty()) return false;
  char* end = nullptr;
  *loss = std::strtod(found->second.c_str(), &end);
  return *end == '\0';
}

constexpr int64_t kWarmupSteps = 20;  // linear warm-up of the learning rate

std::vector<std::span<float>> GradsInReadyOrder(const std::vector<TensorSpec>& tensors,
                                                Buffer<float>& grads) {
  std::vector<std::span<float>> spans;
  for (size_t i = tensors.size(); i-- > 0;) {
    spans.push_back(grads.span().subspan(tensors[i].offset, tensors[i].num_elems));
  }
  return spans;
}

std::vector<ParameterView> ViewsOf(Gpt<float>& model, Buffer<float>& grads) {
  std::vector<ParameterView> views;
  for (const TensorSpec& tensor : model.tensors()) {
    views.push_back({.name = tensor.name,
                     .shape = tensor.shape,
                     .values = model.parameters().subspan(tensor.offset, tensor.num_elems),
                     .grads = grads.span().subspan(tensor.offset, tensor.num_elems),
                     .decays = tensor.kind == TensorKind::kWeight || tensor.kind == TensorKind::kProjection});
  }
  return views;
}

DataParallelOptions Overlap(const Options& train) {
  DataParallelOptions options{.op = ReduceOp::kSum, .timeout = seconds(train.stall_timeout_s)};
  options.bucket_bytes = static_cast<size_t>(train.bucket_bytes);
  options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  return options;
}

std::string_view Bytes(std::span<const float> elems) {
  return {reinterpret_cast<const char*>(elems.data()), elems.size() * sizeof(float)};
}

}  // namespace

Trainer::Trainer(const Options& options, const Corpus& corpus, Communicator comm)
    : options_(options),
      corpus_(corpus),
      comm_(std::move(comm)),
      span_(SpanOfRank(options.global_batch, comm_.rank(), comm_.size())),
      rng_(static_cast<uint64_t>(options.seed)),
      sampler_(corpus.NumSamples(options.model.context), {.seed = static_cast<uint64_t>(options.seed)}),
      model_(options.model, *LayersFor<float>(options.cpu)),
      grads_(model_.parameters().size()),
      optimizer_(MakeOptimizer(options, ViewsOf(model_, grads_))),
      grad_sum_(model_.parameters().size()),
      loss_sum_(1),
      data_parallel_(comm_, GradsInReadyOrder(model_.tensors(), grads_), Overlap(options)) {
  model_.Initialize(rng_);
}

Trainer::Part Trainer::NextPart() const {
  Sampler mine = sampler_;
  mine.Advance(span_.lo);
  Part part{.epoch = mine.state().epoch, .position = mine.state().position};
  for (int64_t i = 0; i < span_.hi - span_.lo; ++i) part.samples.push_back(mine.Peek(i));
  return part;
}

Status Trainer::Step(bool wish) {
  step_sums_[kWishes] = wish ? 1 : 0;
  data_parallel_.Begin();
  ComputeGradients();
  Status reduced = data_parallel_.Finish();
  reduced.Update(sums_reduced_.Wait(std::chrono::steady_clock::now() + seconds(options_.stall_timeout_s)));
  DDPRUN_RETURN_IF_ERROR(reduced, StrCat("step ", step_ + 1));
  const double loss = step_sums_[kLoss];
  if (!std::isfinite(loss)) {
    return FailedPreconditionError(StrCat("step ", step_ + 1, ": the loss is ", loss,
                                          ": try a smaller --lr than ", options_.learning_rate));
  }
  loss_ = loss;
  wished_ = step_sums_[kWishes] > 0;
  ++step_;
  optimizer_->Step({.step = step_, .rate_factor = std::min(1.0, static_cast<double>(step_) / kWarmupSteps)});
  sampler_.Advance(options_.global_batch);
  return OkStatus();
}

void Trainer::ComputeGradients() {
  const int context = options_.model.context;
  const float scale = 1.0f / static_cast<float>(options_.global_batch * context);
  const std::vector<TensorSpec>& tensors = model_.tensors();
  grad_sum_.Begin();
  loss_sum_.Begin();
  for (int64_t place = span_.lo; place < span_.hi; ++place) {
    const std::span<const uint8_t> sequence = corpus_.Sample(sampler_.Peek(place), context);
    double& loss = step_sums_[kLoss];
    loss = model_.Forward(sequence, scale);
    if (place + 1 < span_.hi) {
      loss_sum_.Add({&loss, 1});
      model_.Backward(sequence, grads_.span(), [](size_t) {});
      grad_sum_.Add(grads_.span());
      continue;
    }
    loss_sum_.Finish({&loss, 1}, 0, 1);
    sums_reduced_ = comm_.AllReduce(View(step_sums_), ReduceOp::kSum);
    model_.Backward(sequence, grads_.span(), [&](size_t tensor) {
      grad_sum_.Finish(grads_.span(), tensors[tensor].offset, tensors[tensor].num_elems);
      data_parallel_.GradReady(tensors.size() - 1 - tensor);
    });
  }
}

std::map<std::string, std::string> Trainer::Identity() const {
  return {{"--layers", StrCat(options_.model.layers)}, {"--heads", StrCat(options_.model.heads)},
          {"--width", StrCat(options_.model.width)},   {"--context", StrCat(options_.model.context)},
          {"--seed", StrCat(options_.seed)},           {"--data", StrCat("sha256:", corpus_.sha256)}};
}

Snapshot Trainer::State() const {
  Snapshot snapshot{.step = step_, .attributes = Identity()};
  snapshot.attributes["sampler.epoch"] = StrCat(sampler_.state().epoch);
  snapshot.attributes["sampler.position"] = StrCat(sampler_.state().position);
  snapshot.attributes["rng.counter"] = StrCat(rng_.counter());
  snapshot.attributes["loss"] = absl::StrFormat("%.17g", loss_);
  for (const TensorSpec& tensor : model_.tensors()) {
    snapshot.tensors.push_back(
        ViewOf(tensor.name, tensor.shape, model_.parameters().subspan(tensor.offset, tensor.num_elems)));
  }
  AddOptimizerState(*optimizer_, &snapshot);
  return snapshot;
}

Status Trainer::Restore(const Snapshot& snapshot) {
  for (const auto& [flag, value] : Identity()) {
    const auto found = snapshot.attributes.find(flag);
    const std::string theirs = found == snapshot.attributes.end() ? "unknown" : found->second;
    if (theirs == value) continue;
    return FailedPreconditionError(StrCat("written with ", flag, "=", theirs, ", but this run has ", flag,
                                          "=", value, ": use the same ", flag,
                                          ", or another --snapshot-dir to start from scratch"));
  }
  DDPRUN_ASSIGN_OR_RETURN(const int64_t epoch, snapshot.Integer("sampler.epoch"));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t position, snapshot.Integer("sampler.position"));
  DDPRUN_ASSIGN_OR_RETURN(const int64_t counter, snapshot.Integer("rng.counter"));
  if (epoch < 0 || position < 0 || position >= sampler_.num_samples() || !ReadLoss(snapshot, &loss_)) {
    return DataLossError("its attributes are inconsistent");
  }
  for (const TensorSpec& tensor : model_.tensors()) {
    DDPRUN_RETURN_IF_ERROR(
        snapshot.Copy(tensor.name, model_.parameters().subspan(tensor.offset, tensor.num_elems)));
  }
  DDPRUN_RETURN_IF_ERROR(LoadOptimizerState(snapshot, optimizer_.get()),
                         StrCat("--optimizer=", options_.optimizer));
  sampler_ =
      Sampler(sampler_.num_samples(), {.seed = sampler_.state().seed, .epoch = epoch, .position = position});
  rng_ = CounterRng(rng_.seed(), static_cast<uint64_t>(counter));
  step_ = snapshot.step;
  return OkStatus();
}

std::string Trainer::ParametersSha256() const { return ToHex(Sha256Of(Bytes(model_.parameters()))); }

std::map<std::string, std::string> Trainer::Facts() const {
  std::map<std::string, std::string> facts = Identity();
  facts["--steps"] = StrCat(options_.steps);
  facts["the kind of CPU (--cpu=baseline suits all)"] = std::string(LayersFor<float>(options_.cpu)->cpu());
  facts["--global-batch"] = StrCat(options_.global_batch);
  facts["--optimizer"] = options_.optimizer;
  facts["--lr"] = absl::StrFormat("%.17g", options_.learning_rate);
  facts["--weight-decay"] = absl::StrFormat("%.17g", options_.weight_decay);
  facts["--stall-timeout"] = StrCat(options_.stall_timeout_s);
  facts["--bucket-bytes"] = StrCat(options_.bucket_bytes);
  facts["step"] = StrCat(step_);
  facts["parameters"] = ParametersSha256();
  return facts;
}

namespace {

constexpr double kBeta2 = 0.99;  // lower than Adam's usual value, for small batches and small models
constexpr double kMomentum = 0.9;

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const Options& options, std::vector<ParameterView> parameters) {
  if (options.optimizer == "sgd") {
    return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.learning_rate = options.learning_rate,
                                                                   .momentum = kMomentum,
                                                                   .weight_decay = options.weight_decay});
  }
  return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.learning_rate = options.learning_rate,
                                                                     .beta2 = kBeta2,
                                                                     .weight_decay = options.weight_decay});
}

}  // namespace ddprun::train
