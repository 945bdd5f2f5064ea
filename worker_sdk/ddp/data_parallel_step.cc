#include "worker_sdk/ddp/data_parallel_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/bucket_plan.h"
#include "worker_sdk/ddp/link_cost.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFirstBucketBytes = 256 << 10;
constexpr int64_t kBucketBytes = 4 << 20;  // until the buckets are planned
// On a GPU, where each operation costs several kernel launches and links are faster: as PyTorch's DistributedDataParallel.
constexpr int64_t kGpuBucketBytes = 25 << 20, kFirstGpuBucketBytes = 1 << 20;
// For clearing memory on a GPU.
constexpr Duration kClearLimit = std::chrono::seconds(10);
// The step whose times the plan is made from. The first step has cold caches.
constexpr int64_t kTimedStep = 2;

DataParallelOptions WithSizesFor(const Device& device, DataParallelOptions options) {
  if (device.type == DeviceType::kHost || options.bucket_bytes > 0) return options;
  options.bucket_bytes = kGpuBucketBytes;
  options.first_bucket_bytes = kFirstGpuBucketBytes;
  return options;
}

int64_t FirstBucketBytes(const DataParallelOptions& options, int64_t bucket_bytes) {
  return options.first_bucket_bytes > 0 ? options.first_bucket_bytes
                                        : std::min(bucket_bytes, kFirstBucketBytes);
}

size_t IndexOf(DType dtype) { return static_cast<size_t>(dtype); }

// The values of one_ and flags_ on the host.
Tensor OneElement(const std::shared_ptr<void>& memory, size_t index, DType dtype) {
  return {static_cast<char*>(memory.get()) + 8 * index, 1, dtype};
}

double SecondsBetween(TimePoint a, TimePoint b) { return std::chrono::duration<double>(b - a).count(); }

}  // namespace

DataParallelStep::DataParallelStep(Communicator comm, std::vector<Parameter> parameters,
                                   const DataParallelOptions& options)
    : comm_(std::move(comm)),
      parameters_(std::move(parameters)),
      options_(WithSizesFor(parameters_[0].value.device, options)) {}

DataParallelStep::~DataParallelStep() {
  if (state_ != State::kInStep) return;
  comm_.Abort("a data-parallel step was not finished");
  EndPending();
}

void DataParallelStep::EndPending() {
  for (Work& work : pending_) (void)work.Wait(Clock::now());
  pending_.clear();
}

Status DataParallelStep::Allocate() {
  const Device device = parameters_[0].value.device;
  DDPRUN_ASSIGN_OR_RETURN(ops_, ArrayOps::Open(device));
  std::vector<size_t> backwards(parameters_.size());
  for (size_t i = 0; i < backwards.size(); ++i) backwards[i] = backwards.size() - 1 - i;
  const int64_t bytes = options_.bucket_bytes > 0 ? options_.bucket_bytes : kBucketBytes;
  const BucketLists buckets = DivideByType(parameters_, backwards, [&](std::span<const size_t> order) {
    std::vector<int64_t> sizes;
    for (const size_t i : order) sizes.push_back(SentBytes(i));
    return PlanBySize(sizes, FirstBucketBytes(options_, bytes), bytes);
  });
  const auto totals = LayOut(parameters_, buckets, extra()).totals;
  // Also for types without elements, so that their tensors have the type and are not null.
  std::set<DType> types;
  for (const Parameter& p : parameters_) types.insert(p.value.dtype);
  for (const DType dtype : types) {
    const int64_t count = totals[IndexOf(dtype)];
    if (SentAs(dtype) == dtype) {
      DDPRUN_ASSIGN_OR_RETURN(arenas_[IndexOf(dtype)], Arena::AllocateShared(comm_, device, dtype, count));
      continue;
    }
    DDPRUN_ASSIGN_OR_RETURN(arenas_[IndexOf(dtype)], Arena::Allocate(*ops_, dtype, count));
    DDPRUN_ASSIGN_OR_RETURN(sent_arenas_[IndexOf(dtype)],
                            Arena::AllocateShared(comm_, device, SentAs(dtype), count));
  }
  if (options_.error_feedback) {
    int64_t count = 0;
    for (const Parameter& p : parameters_) {
      residual_begins_.push_back(count);
      count += p.value.count;
    }
    DDPRUN_ASSIGN_OR_RETURN(residuals_, Arena::Allocate(*ops_, DType::kFloat32, count));
  }
  if (options_.unused_parameters) {
    DDPRUN_ASSIGN_OR_RETURN(one_, ops_->AllocateOnHost(8 * arenas_.size()));
    DDPRUN_ASSIGN_OR_RETURN(flags_, ops_->AllocateOnHost(8 * parameters_.size()));
    for (const DType dtype : types) {
      for (const DType sent : {dtype, SentAs(dtype)}) SetElement(OneElement(one_, IndexOf(sent), sent), 0, 1);
    }
  }
  LayOutAs(buckets);
  return OkStatus();  // the memory is zero
}

DType DataParallelStep::SentAs(DType dtype) const {
  if (options_.compression == Compression::kNone || SizeOf(dtype) == 2) return dtype;
  return options_.compression == Compression::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

bool DataParallelStep::DividesFirst(DType dtype) const {
  return options_.op == ReduceOp::kMean && SentAs(dtype) != dtype && SentAs(dtype) == DType::kFloat16;
}

int64_t DataParallelStep::SentBytes(size_t i) const {
  return parameters_[i].value.count * SizeOf(SentAs(parameters_[i].value.dtype));
}

Tensor DataParallelStep::InSlot(size_t i, int64_t count) const {
  return arenas_[IndexOf(parameters_[i].value.dtype)].View(layout_.slots[i].begin, count);
}

Tensor DataParallelStep::SentSlot(size_t i, int64_t count) const {
  const DType dtype = parameters_[i].value.dtype;
  if (SentAs(dtype) == dtype) return InSlot(i, count);
  return sent_arenas_[IndexOf(dtype)].View(layout_.slots[i].begin, count);
}

Tensor DataParallelStep::SentBucket(size_t b) const {
  const Layout::Bucket& bucket = layout_.buckets[b];
  const bool compressed = SentAs(bucket.dtype) != bucket.dtype;
  return (compressed ? sent_arenas_ : arenas_)[IndexOf(bucket.dtype)].View(bucket.begin, bucket.count);
}

Tensor DataParallelStep::FlagOf(size_t i) const {
  const DType dtype = parameters_[i].value.dtype;
  const Arena& arena = (SentAs(dtype) == dtype ? arenas_ : sent_arenas_)[IndexOf(dtype)];
  return arena.View(layout_.slots[i].begin + parameters_[i].value.count, 1);
}

float* DataParallelStep::ResidualOf(size_t i) const {
  if (!options_.error_feedback) return nullptr;
  return static_cast<float*>(residuals_.View(residual_begins_[i], 0).data);
}

void DataParallelStep::LayOutAs(const BucketLists& buckets) {
  layout_ = LayOut(parameters_, buckets, extra());
  std::vector<size_t> sizes;
  for (const std::vector<size_t>& bucket : buckets) sizes.push_back(bucket.size());
  scheduler_.emplace(std::move(sizes));
  timings_.assign(buckets.size(), {});
  for (size_t b = 0; b < buckets.size(); ++b) {
    timings_[b].parameters = buckets[b];
    timings_[b].num_bytes = SentBucket(b).count * SizeOf(SentBucket(b).dtype);
  }
}

Status DataParallelStep::ClearSlots() {
  for (const auto& arenas : {&arenas_, &sent_arenas_}) {
    for (const Arena& arena : *arenas) {
      if (arena.all().count > 0) DDPRUN_RETURN_IF_ERROR(ops_->Zero(ops_->stream(), arena.all()));
    }
  }
  return ops_->Await(ops_->stream(), DeadlineAfter(kClearLimit), "clearing the buckets");
}

Status DataParallelStep::CheckStream(const Stream& stream, std::string_view what) {
  if (stream.handle == checked_.handle && stream.device == checked_.device &&
      (on_host() || stream.handle != nullptr))
    return OkStatus();
  DDPRUN_RETURN_IF_ERROR(ops_->CheckStream(stream), what);
  checked_ = stream;
  return OkStatus();
}

Status DataParallelStep::Follow(const Stream& stream, std::string_view what) {
  DDPRUN_RETURN_IF_ERROR(CheckStream(stream, what));
  return ops_->Order(stream, ops_->stream());
}

Tensor DataParallelStep::gradient(size_t i) const {
  DDPRUN_CHECK(i < parameters_.size(), "no such gradient");
  const Parameter& p = parameters_[i];
  return p.gradient.data != nullptr ? p.gradient : InSlot(i, p.value.count);
}

void DataParallelStep::Begin() {
  DDPRUN_CHECK(state_ != State::kFailed, "Begin() after an error");
  DDPRUN_CHECK(state_ == State::kIdle, "Begin() before Finish() of the previous step");
  state_ = State::kInStep;
  fault_ = OkStatus();
  if (next_buckets_) {
    LayOutAs(*std::exchange(next_buckets_, std::nullopt));
    fault_ = ClearSlots();  // the elements between gradients are reduced, too, and must be zero
  }
  (void)scheduler_->Step(StepBegan{});
  ready_.assign(parameters_.size(), 0);
  used_.assign(parameters_.size(), 1);
  ready_order_.clear();
  ready_times_.clear();
}

void DataParallelStep::ZeroGradients(const Stream& stream) {
  DDPRUN_CHECK(state_ == State::kInStep && ready_order_.empty(),
               "ZeroGradients() after Ready() or outside a step");
  const auto clear = [&]() -> Status {
    DDPRUN_RETURN_IF_ERROR(CheckStream(stream, "ZeroGradients"));
    DDPRUN_RETURN_IF_ERROR(ops_->Order(ops_->stream(), stream));
    for (size_t i = 0; i < parameters_.size(); ++i) DDPRUN_RETURN_IF_ERROR(ops_->Zero(stream, gradient(i)));
    return ops_->Order(stream, ops_->stream());
  };
  fault_.Update(clear());
}

void DataParallelStep::Ready(size_t i, const Stream& stream) {
  DDPRUN_CHECK(i < parameters_.size(), "no such gradient");
  DDPRUN_CHECK(state_ == State::kInStep && ready_[i] == 0,
               "gradient " << parameters_[i].name << " became ready twice in a step, or outside a step");
  ready_[i] = 1;
  ready_order_.push_back(i);
  ready_times_.push_back(Clock::now());
  fault_.Update(Follow(stream, "Ready"));
  Submit(i, true);
}

void DataParallelStep::Submit(size_t i, bool ready) {
  if (fault_.ok()) fault_ = FillSlot(i, ready);
  if (!fault_.ok()) return;  // the error of Finish
  for (const size_t bucket : scheduler_->Step(GradBecameReady{layout_.slots[i].position}).buckets) {
    if (options_.overlap) {
      Launch(bucket);
    } else {
      launchable_.push_back(bucket);
    }
  }
}

Status DataParallelStep::FillSlot(size_t i, bool ready) {
  const Parameter& p = parameters_[i];
  const int64_t count = p.value.count;
  const Stream stream = ops_->stream();
  const Tensor slot = InSlot(i, count), sent = SentSlot(i, count);
  if (!ready) {
    DDPRUN_RETURN_IF_ERROR(ops_->Zero(stream, slot));
    // What earlier steps left is kept for a step that has a gradient.
    if (sent.data != slot.data) DDPRUN_RETURN_IF_ERROR(ops_->Zero(stream, sent));
  } else {
    if (p.gradient.data != nullptr) DDPRUN_RETURN_IF_ERROR(ops_->Copy(stream, p.gradient, slot));
    const float divisor = DividesFirst(slot.dtype) ? static_cast<float>(comm_.size()) : 1;
    if (sent.dtype != slot.dtype)
      DDPRUN_RETURN_IF_ERROR(ops_->Compress(stream, slot, divisor, ResidualOf(i), sent));
  }
  if (!options_.unused_parameters) return OkStatus();
  const Tensor flag = FlagOf(i);
  if (!ready) return ops_->Zero(stream, flag);
  return ops_->CopyFromHost(stream, OneElement(one_, IndexOf(flag.dtype), flag.dtype).data, flag);
}

void DataParallelStep::Launch(size_t bucket) {
  const ReduceOp op = DividesFirst(layout_.buckets[bucket].dtype) ? ReduceOp::kSum : options_.op;
  timings_[bucket].started = Clock::now();
  pending_.push_back(comm_.AllReduce(SentBucket(bucket), op, {.stream = ops_->stream()}));
}

Status DataParallelStep::Finish(const FinishOptions& options) {
  DDPRUN_CHECK(state_ == State::kInStep, "Finish() without Begin()");
  const TimePoint deadline = DeadlineAfter(options_.timeout);
  norm_ = 0;
  norm_is_finite_ = true;
  unused_.clear();
  Status status = CheckOptions(options);
  if (status.ok()) status = SubmitMissing();
  if (status.ok()) status = fault_;
  if (status.ok()) status = Reduce(options, deadline);
  if (!status.ok()) {
    comm_.Abort(status.message());  // the other ranks would wait
    EndPending();
  }
  pending_.clear();
  launchable_.clear();
  ++num_steps_;
  if (status.ok()) status = PlanAhead();
  if (status.ok() && options_.atomic_steps) status = Commit(options, deadline);
  state_ = status.ok() ? State::kIdle : State::kFailed;
  return WithContext(status, "reducing gradients");
}

Status DataParallelStep::Wait() {
  DDPRUN_CHECK(state_ == State::kIdle, "Wait() in a step, or after an error");
  if (on_host()) return OkStatus();
  Status status = ops_->Await(ops_->stream(), DeadlineAfter(options_.timeout), "a data-parallel step");
  // An operation that has failed does not keep the stream waiting.
  if (status.ok()) status = comm_.status();
  if (!status.ok()) {
    comm_.Abort(status.message());
    state_ = State::kFailed;
  }
  return WithContext(status, "waiting for a data-parallel step");
}

Status DataParallelStep::CheckOptions(const FinishOptions& options) {
  if (!(options.clip_norm >= 0)) return InvalidArgumentError(StrCat("clip_norm is ", options.clip_norm));
  DDPRUN_RETURN_IF_ERROR(CheckStream(options.stream, "FinishOptions::stream"));
  if (options.clip_norm > 0) {
    for (const Parameter& p : parameters_) {
      if (ops_->Computes(p.value.dtype)) continue;
      return InvalidArgumentError(
          StrCat("clip_norm on a GPU needs float32: parameter ", p.name, " is ", NameOf(p.value.dtype)));
    }
  }
  if (options.optimizer == nullptr) {
    return options_.atomic_steps ? InvalidArgumentError("atomic_steps needs an optimizer in each Finish")
                                 : OkStatus();
  }
  if (options_.atomic_steps && options.step.step < 1) {
    return InvalidArgumentError(StrCat("the step of the optimizer is ", options.step.step));
  }
  const bool same = std::ranges::equal(
      options.optimizer->parameters(), parameters_, [](const Parameter& a, const Parameter& b) {
        return a.value.data == b.value.data && a.value.count == b.value.count;
      });
  if (!same) return InvalidArgumentError("the optimizer is for other parameters");
  return OkStatus();
}

Status DataParallelStep::SubmitMissing() {
  if (ready_order_.size() == parameters_.size()) return OkStatus();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (ready_[i] != 0) continue;
    if (!options_.unused_parameters) {
      return FailedPreconditionError(StrCat("Ready() was not called for parameter ", parameters_[i].name));
    }
    Submit(i, false);
  }
  return OkStatus();
}

Status DataParallelStep::Reduce(const FinishOptions& options, TimePoint deadline) {
  for (const size_t bucket : launchable_) Launch(bucket);
  const bool clips = options.clip_norm > 0;
  for (size_t b = 0; b < pending_.size(); ++b) {
    DDPRUN_RETURN_IF_ERROR(Join(b, options.stream, deadline));
    if (options_.unused_parameters) DDPRUN_RETURN_IF_ERROR(ReadUsed(b, options.stream, deadline));
    for (const size_t i : layout_.buckets[b].parameters) {
      DDPRUN_RETURN_IF_ERROR(Receive(i, options.stream));
      if (!clips) DDPRUN_RETURN_IF_ERROR(Deliver(i, options, !options_.atomic_steps));
    }
  }
  std::ranges::sort(unused_);
  if (clips) DDPRUN_RETURN_IF_ERROR(Clip(options, deadline));
  if (options.optimizer != nullptr) DDPRUN_RETURN_IF_ERROR(options.optimizer->status());
  return ops_->Order(options.stream, ops_->stream());
}

Status DataParallelStep::Join(size_t bucket, const Stream& stream, TimePoint deadline) {
  Work& work = pending_[bucket];
  DDPRUN_RETURN_IF_ERROR(on_host() ? work.Wait(deadline) : work.WaitOn(stream));
  timings_[bucket].reduced = WorkAccess::OperationOf(work)->ended().value_or(Clock::now());
  return OkStatus();
}

Status DataParallelStep::ReadUsed(size_t bucket, const Stream& stream, TimePoint deadline) {
  const std::vector<size_t>& parameters = layout_.buckets[bucket].parameters;
  for (const size_t i : parameters) {
    const Tensor flag = FlagOf(i);
    DDPRUN_RETURN_IF_ERROR(ops_->CopyToHost(stream, flag, OneElement(flags_, i, flag.dtype).data));
  }
  DDPRUN_RETURN_IF_ERROR(ops_->Await(stream, deadline, "the reduced gradients"));
  for (const size_t i : parameters) {
    if (ElementAt(OneElement(flags_, i, FlagOf(i).dtype), 0) != 0) continue;
    used_[i] = 0;
    unused_.push_back(i);
  }
  return OkStatus();
}

Status DataParallelStep::Receive(size_t i, const Stream& stream) {
  const int64_t count = parameters_[i].value.count;
  const Tensor slot = InSlot(i, count), sent = SentSlot(i, count);
  return sent.dtype == slot.dtype ? OkStatus() : ops_->Decompress(stream, sent, slot);
}

Status DataParallelStep::Deliver(size_t i, const FinishOptions& options, bool update) {
  const Parameter& p = parameters_[i];
  const Tensor slot = InSlot(i, p.value.count);
  if (p.gradient.data != nullptr) DDPRUN_RETURN_IF_ERROR(ops_->Copy(options.stream, slot, p.gradient));
  if (!update || options.optimizer == nullptr || used_[i] == 0) return OkStatus();
  OptimizerStep step = options.step;
  step.stream = options.stream;
  options.optimizer->Update(i, slot, step);
  return OkStatus();
}

Status DataParallelStep::Clip(const FinishOptions& options, TimePoint deadline) {
  std::vector<ConstTensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i)
    gradients.emplace_back(InSlot(i, parameters_[i].value.count));
  DDPRUN_ASSIGN_OR_RETURN(norm_, ops_->Norm(options.stream, gradients, deadline));
  const bool finite = norm_is_finite_ = std::isfinite(norm_);
  const bool exceeds = finite && norm_ > options.clip_norm;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (exceeds) {
      DDPRUN_RETURN_IF_ERROR(
          ops_->Multiply(options.stream, options.clip_norm / norm_, InSlot(i, parameters_[i].value.count)));
    }
    DDPRUN_RETURN_IF_ERROR(Deliver(i, options, finite && !options_.atomic_steps));
  }
  return OkStatus();
}

std::vector<size_t> DataParallelStep::ReadyOrder() const {
  std::vector<size_t> order = ready_order_;
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (ready_[i] == 0) order.push_back(i);
  }
  return order;
}

Status DataParallelStep::PlanAhead() {
  const bool fixed = sizes_are_fixed();
  if (num_steps_ != (fixed ? 1 : kTimedStep)) return OkStatus();
  const TimePoint deadline = DeadlineAfter(options_.timeout);
  AllReduceCost cost;
  if (!fixed) {
    int64_t bytes = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) bytes += SentBytes(i);
    DDPRUN_ASSIGN_OR_RETURN(cost, MeasureAllReduce(comm_, bytes, deadline), "measuring the link");
  }
  std::vector<int64_t> numbers(2 * parameters_.size());
  if (comm_.rank() == 0) {
    // A gradient that was left out counts as ready with the last one.
    std::vector<double> ready_s(
        parameters_.size(),
        ready_times_.empty() ? 0 : SecondsBetween(ready_times_.front(), ready_times_.back()));
    for (size_t k = 0; k < ready_order_.size(); ++k) {
      ready_s[ready_order_[k]] = SecondsBetween(ready_times_.front(), ready_times_[k]);
    }
    numbers = Encode(DivideByType(parameters_, ReadyOrder(), [&](std::span<const size_t> order) {
      std::vector<int64_t> sizes;
      std::vector<ReadyGradient> gradients;
      for (const size_t i : order) {
        sizes.push_back(SentBytes(i));
        gradients.push_back({ready_s[i], SentBytes(i)});
      }
      const int64_t bytes = options_.bucket_bytes;
      return fixed ? PlanBySize(sizes, FirstBucketBytes(options_, bytes), bytes)
                   : DivideLarge(gradients, cost, PlanByCost(gradients, cost));
    }));
  }
  DDPRUN_RETURN_IF_ERROR(comm_.Broadcast(View(numbers), 0).Wait(deadline), "planning buckets");
  next_buckets_ = Decode(numbers, parameters_);
  if (!next_buckets_) return InternalError("rank 0 sent buckets that do not fit the parameters");
  return OkStatus();
}

}  // namespace ddprun::internal
