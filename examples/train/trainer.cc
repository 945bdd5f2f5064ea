#include "examples/train/trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/time.h"
#include "ddprun/recover.h"
#include "ddprun/status.h"
#include "examples/train/model/model.h"
#include "worker_sdk/core/strings.h"
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

constexpr double kBytesPerMb = 1 << 20;

Compression CompressionOf(const std::string& name) {
  if (name == "bf16") return Compression::kBFloat16;
  return name == "fp16" ? Compression::kFloat16 : Compression::kNone;
}

DataParallelOptions StepOptions(const Options& train) {
  return {.op = ReduceOp::kSum,
          .bucket_bytes = static_cast<int64_t>(std::ceil(train.bucket_mb * kBytesPerMb)),
          .overlap = !train.no_overlap,
          .compression = CompressionOf(train.compression),
          .atomic_steps = train.in_place,
          .timeout = seconds(train.stall_timeout_s)};
}

// Returns the number of sequences of a pass. Unless there is one pass, it is a power of two: then the sum of
// a pass is a subtree of the sum of all sequences.
int64_t PassSize(int64_t share, int64_t accumulate) {
  if (accumulate == 1) return share;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((share + accumulate - 1) / accumulate)));
}

// The same, if the model has memory for passes of at most `limit` sequences.
int64_t PassSizeUpTo(int64_t limit, int64_t share, int64_t accumulate) {
  const int64_t size = PassSize(share, accumulate);
  return size <= limit ? size : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(limit)));
}

std::string_view Bytes(std::span<const float> elems) {
  return {reinterpret_cast<const char*>(elems.data()), elems.size() * sizeof(float)};
}

}  // namespace

Trainer::Trainer(const Options& options, const Corpus& corpus, Communicator comm, TraceLog* trace)
    : Trainer(options, corpus, MakeHostReplica(options, ShapeFor(options, comm)), comm, trace) {}

Trainer::Trainer(const Options& options, const Corpus& corpus, std::unique_ptr<Replica> replica,
                 Communicator comm, TraceLog* trace)
    : options_(options),
      corpus_(corpus),
      comm_(std::move(comm)),
      trace_(trace),
      span_(SpanOfRank(options.global_batch, comm_.rank(), comm_.size())),
      pass_size_(PassSize(span_.hi - span_.lo, options.accumulate)),
      max_pass_(pass_size_),
      rng_(static_cast<uint64_t>(options.seed)),
      sampler_(corpus.NumSamples(options.model.context), {.seed = static_cast<uint64_t>(options.seed)}),
      replica_(std::move(replica)),
      loss_sum_(1) {
  InitializeParameters(options.model, replica_->tensors(), rng_, replica_->host_parameters());
  if (trace_ != nullptr) traced_optimizer_.emplace(replica_->optimizer(), *trace_);
}

ReplicaShape Trainer::ShapeFor(const Options& options, const Communicator& comm) {
  const BatchSpan span = SpanOfRank(options.global_batch, comm.rank(), comm.size());
  const int64_t share = span.hi - span.lo;
  return {.max_batch = static_cast<int>(PassSize(share, options.accumulate)),
          // With --in-place, the share of a rank grows when others are lost.
          .max_sequences = static_cast<int>(options.in_place ? options.global_batch : share)};
}

Trainer::Part Trainer::NextPart() const {
  Sampler mine = sampler_;
  mine.Advance(span_.lo);
  Part part{.epoch = mine.state().epoch, .position = mine.state().position};
  for (int64_t i = 0; i < span_.hi - span_.lo; ++i) part.samples.push_back(mine.Peek(i));
  return part;
}

Status Trainer::Step(const Wishes& wishes) {
  const std::string step = StrCat("step ", step_ + 1);
  if (!data_parallel_) {
    if (host_is_newer_) DDPRUN_RETURN_IF_ERROR(Upload(), step);
    DDPRUN_ASSIGN_OR_RETURN(
        data_parallel_,
        DataParallel::Create(comm_, replica_->optimizer().parameters(), StepOptions(options_)), step);
  }
  has_state_ = true;
  step_sums_[kSnapshotWishes] = wishes.snapshot ? 1 : 0;
  step_sums_[kStopWishes] = wishes.stop ? 1 : 0;
  data_parallel_->Begin();
  if (const Status computed = ComputeGradients(); !computed.ok()) {
    comm_.Abort(computed.message());  // the other ranks would wait, and then not know the cause
    return WithContext(computed, step);
  }
  // The sums have been reduced before the first bucket, so this wait does not delay the buckets.
  DDPRUN_RETURN_IF_ERROR(
      sums_reduced_.Wait(std::chrono::steady_clock::now() + seconds(options_.stall_timeout_s)), step);
  const double loss = step_sums_[kLoss];
  const bool finite = std::isfinite(loss);
  FinishOptions update{.stream = replica_->stream()};
  if (finite || options_.in_place) {
    update.optimizer = &optimizer();
    update.step = {.step = step_ + 1, .rate_factor = Warmup(step_ + 1, kWarmupSteps)};
    update.clip_norm = options_.clip;
  }
  // An atomic step needs an optimizer. With a limit, it does not apply gradients that are not finite.
  if (!finite && options_.in_place && options_.clip == 0) {
    update.clip_norm = std::numeric_limits<double>::infinity();
  }
  // Even if the loss is not finite, so that all ranks report that, and not that a peer has left.
  DDPRUN_RETURN_IF_ERROR(Finish(update), step);
  const std::string advice = StrCat(": try a smaller --lr than ", options_.learning_rate);
  if (!finite) return FailedPreconditionError(StrCat(step, ": the loss is ", loss, advice));
  if (const double norm = data_parallel_->norm(); !std::isfinite(norm)) {
    return FailedPreconditionError(StrCat(step, ": the norm of the gradients is ", norm, advice));
  }
  StepDone({.snapshot = step_sums_[kSnapshotWishes] > 0, .stop = step_sums_[kStopWishes] > 0});
  return OkStatus();
}

void Trainer::StepDone(const Wishes& wished) {
  loss_ = step_sums_[kLoss];
  wished_ = wished;
  ++step_;
  sampler_.Advance(options_.global_batch);
}

void Trainer::Rejoin(Communicator comm) {
  comm_ = std::move(comm);
  span_ = SpanOfRank(options_.global_batch, comm_.rank(), comm_.size());
  pass_size_ = PassSizeUpTo(max_pass_, span_.hi - span_.lo, options_.accumulate);
}

Trainer::Carried Trainer::ToCarry() const {
  return {
      .loss = loss_,
      .numbers = {sampler_.state().epoch, sampler_.state().position, static_cast<int64_t>(rng_.counter())}};
}

StatusOr<bool> Trainer::Recover(Context& context, const std::function<void()>& committed) {
  int64_t step = has_state_ ? step_ : -1;
  carried_ = ToCarry();
  wished_ = {};  // a request ends with its round
  const StatusOr<Recovered> recovered =
      ddprun::Recover(context, comm_,
                      {.step = &step,
                       .last = data_parallel_ ? &*data_parallel_ : nullptr,
                       .parameters = optimizer().parameters(),
                       .optimizer = &optimizer(),
                       .more = {View(carried_.numbers), {&carried_.loss, 1, DType::kFloat64}},
                       .committed = [&](int64_t) {
                         StepDone({});
                         carried_ = ToCarry();
                         committed();
                       }});
  if (traced_optimizer_) traced_optimizer_->EndStep();
  has_state_ = step >= 0;
  DDPRUN_RETURN_IF_ERROR(recovered.status());
  data_parallel_.reset();
  if (!has_state_) {
    Initialize();
    return false;
  }
  host_is_newer_ = false;
  const auto& [epoch, position, counter] = carried_.numbers;
  sampler_ =
      Sampler(sampler_.num_samples(), {.seed = sampler_.state().seed, .epoch = epoch, .position = position});
  rng_ = CounterRng(rng_.seed(), static_cast<uint64_t>(counter));
  loss_ = carried_.loss;
  step_ = step;
  return true;
}

void Trainer::Initialize() {
  rng_ = CounterRng(static_cast<uint64_t>(options_.seed));
  sampler_ = Sampler(sampler_.num_samples(), {.seed = static_cast<uint64_t>(options_.seed)});
  InitializeParameters(options_.model, replica_->tensors(), rng_, replica_->host_parameters());
  replica_->ClearOptimizerState();
  host_is_newer_ = true;
  step_ = 0;
  loss_ = 0;
  wished_ = {};
}

Status Trainer::Finish(const FinishOptions& update) {
  Status finished;
  {
    const TraceSpan span(trace_, TraceKind::kFinish, step_ + 1);
    finished = data_parallel_->Finish(update);
  }
  if (trace_ != nullptr) {
    traced_optimizer_->EndStep();
    trace_->AddBuckets(step_ + 1, data_parallel_->timings());
  }
  return finished;
}

Status Trainer::ComputeGradients() {
  const int context = options_.model.context;
  const float scale = 1.0f / static_cast<float>(options_.global_batch * context);
  const auto grad = [&](size_t tensor) { return static_cast<float*>(data_parallel_->gradient(tensor).data); };
  const auto ready = [&](size_t tensor) { data_parallel_->Ready(tensor, replica_->stream()); };
  replica_->BeginStep();
  for (int64_t first = span_.lo; first < span_.hi; first += pass_size_) {
    const int64_t end = std::min(first + pass_size_, span_.hi);
    const bool is_last = end == span_.hi;
    std::vector<std::span<const uint8_t>> batch;
    for (int64_t place = first; place < end; ++place) {
      batch.push_back(corpus_.Sample(sampler_.Peek(place), context));
    }
    {
      const TraceSpan span(trace_, TraceKind::kForward, step_ + 1);
      DDPRUN_RETURN_IF_ERROR(replica_->Forward(batch, scale));
    }
    if (is_last && replica_->on_host()) DDPRUN_RETURN_IF_ERROR(SumLosses());
    const TraceSpan span(trace_, TraceKind::kBackward, step_ + 1);
    DDPRUN_RETURN_IF_ERROR(replica_->Backward(grad, ready, is_last));
  }
  // The losses of a GPU are known once it has computed them. It computes backward meanwhile.
  return replica_->on_host() ? OkStatus() : SumLosses();
}

Status Trainer::SumLosses() {
  DDPRUN_ASSIGN_OR_RETURN(const std::span<const double> losses, replica_->Losses());
  double& loss = step_sums_[kLoss];
  loss_sum_.Begin();
  for (size_t i = 0; i < losses.size(); ++i) {
    loss = losses[i];
    if (i + 1 == losses.size()) break;
    loss_sum_.Add({&loss, 1}, 0);
    loss_sum_.EndTerm();
  }
  loss_sum_.Finish({&loss, 1}, 0);
  sums_reduced_ = comm_.AllReduce(View(step_sums_), ReduceOp::kSum);
  return OkStatus();
}

Status Trainer::Upload() {
  DDPRUN_RETURN_IF_ERROR(replica_->ToDevice());
  host_is_newer_ = false;
  return OkStatus();
}

Status Trainer::Fetch() {
  if (replica_->on_host() || host_is_newer_) return OkStatus();
  if (data_parallel_) DDPRUN_RETURN_IF_ERROR(data_parallel_->Wait());
  return replica_->ToHost();
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
  for (const TensorSpec& tensor : replica_->tensors()) {
    const std::span<const float> values = replica_->host_parameters();
    snapshot.tensors.push_back(
        ViewOf(tensor.name, tensor.shape, values.subspan(tensor.offset, tensor.num_elems)));
  }
  replica_->AddOptimizerStateTo(&snapshot);
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
  for (const TensorSpec& tensor : replica_->tensors()) {
    const std::span<float> values = replica_->host_parameters();
    DDPRUN_RETURN_IF_ERROR(snapshot.Copy(tensor.name, values.subspan(tensor.offset, tensor.num_elems)));
  }
  DDPRUN_RETURN_IF_ERROR(replica_->LoadOptimizerStateFrom(snapshot),
                         StrCat("--optimizer=", options_.optimizer));
  DDPRUN_RETURN_IF_ERROR(Upload());
  sampler_ =
      Sampler(sampler_.num_samples(), {.seed = sampler_.state().seed, .epoch = epoch, .position = position});
  rng_ = CounterRng(rng_.seed(), static_cast<uint64_t>(counter));
  step_ = snapshot.step;
  return OkStatus();
}

std::string Trainer::ParametersSha256() const { return ToHex(Sha256Of(Bytes(replica_->host_parameters()))); }

std::map<std::string, std::string> Trainer::Facts(bool parameters) const {
  std::map<std::string, std::string> facts = Identity();
  facts["--steps"] = StrCat(options_.steps);
  facts["the kind of CPU (--cpu=baseline suits all)"] = std::string(replica_->kind());
  facts["--global-batch"] = StrCat(options_.global_batch);
  facts["--optimizer"] = options_.optimizer;
  facts["--lr"] = absl::StrFormat("%.17g", options_.learning_rate);
  facts["--weight-decay"] = absl::StrFormat("%.17g", options_.weight_decay);
  facts["--stall-timeout"] = StrCat(options_.stall_timeout_s);
  facts["--bucket-mb"] = absl::StrFormat("%.17g", options_.bucket_mb);
  facts["--in-place"] = options_.in_place ? "yes" : "no";
  facts["--no-overlap"] = options_.no_overlap ? "yes" : "no";
  facts["--trace"] = options_.trace;  // writing it is collective
  facts["--compression"] = options_.compression;
  facts["--clip"] = absl::StrFormat("%.17g", options_.clip);
  facts["step"] = StrCat(step_);
  if (parameters) facts["parameters"] = ParametersSha256();
  return facts;
}

}  // namespace ddprun::train
