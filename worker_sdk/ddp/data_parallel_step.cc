#include "worker_sdk/ddp/data_parallel_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "worker_sdk/comm/floating_point_mode.h"
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
// The step whose times the plan is made from. The first step has cold caches.
constexpr int64_t kTimedStep = 2;

int64_t FirstBucketBytes(const DataParallelOptions& options, int64_t bucket_bytes) {
  return options.first_bucket_bytes > 0 ? options.first_bucket_bytes
                                        : std::min(bucket_bytes, kFirstBucketBytes);
}

size_t IndexOf(DType dtype) { return static_cast<size_t>(dtype); }

void Copy(const ConstTensor& from, const Tensor& to) {
  if (from.count > 0) std::memcpy(to.data, from.data, from.count * SizeOf(from.dtype));
}

void SetToZero(const Tensor& tensor) {
  if (tensor.count > 0) std::memset(tensor.data, 0, tensor.count * SizeOf(tensor.dtype));
}

double SecondsBetween(TimePoint a, TimePoint b) { return std::chrono::duration<double>(b - a).count(); }

}  // namespace

DataParallelStep::DataParallelStep(Communicator comm, std::vector<Parameter> parameters,
                                   const DataParallelOptions& options)
    : comm_(std::move(comm)), parameters_(std::move(parameters)), options_(options) {}

DataParallelStep::~DataParallelStep() {
  if (state_ != State::kInStep) return;
  comm_.Abort("a data-parallel step was not finished");
  // The operations use the buckets' memory until they end.
  for (Work& work : pending_) (void)work.Wait(Clock::now());
}

Status DataParallelStep::Allocate() {
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
      DDPRUN_ASSIGN_OR_RETURN(arenas_[IndexOf(dtype)], Arena::AllocateShared(comm_, dtype, count));
      continue;
    }
    DDPRUN_ASSIGN_OR_RETURN(arenas_[IndexOf(dtype)], Arena::Allocate(dtype, count));
    DDPRUN_ASSIGN_OR_RETURN(sent_arenas_[IndexOf(dtype)], Arena::AllocateShared(comm_, SentAs(dtype), count));
  }
  if (options_.error_feedback) {
    int64_t count = 0;
    for (const Parameter& p : parameters_) {
      residual_begins_.push_back(count);
      count += p.value.count;
    }
    DDPRUN_ASSIGN_OR_RETURN(residuals_, Arena::Allocate(DType::kFloat32, count));
  }
  LayOutAs(buckets);
  return OkStatus();
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

float* DataParallelStep::ResidualOf(size_t i) const {
  if (!options_.error_feedback) return nullptr;
  return static_cast<float*>(residuals_.View(residual_begins_[i], 0).data);
}

void DataParallelStep::LayOutAs(const BucketLists& buckets) {
  layout_ = LayOut(parameters_, buckets, extra());
  // The elements between gradients are reduced, too, and must be zero.
  for (Arena& arena : arenas_) arena.Zero();
  for (Arena& arena : sent_arenas_) arena.Zero();
  std::vector<size_t> sizes;
  for (const std::vector<size_t>& bucket : buckets) sizes.push_back(bucket.size());
  scheduler_.emplace(std::move(sizes));
  timings_.assign(buckets.size(), {});
  for (size_t b = 0; b < buckets.size(); ++b) {
    timings_[b].parameters = buckets[b];
    timings_[b].num_bytes = SentBucket(b).count * SizeOf(SentBucket(b).dtype);
  }
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
  if (next_buckets_) LayOutAs(*std::exchange(next_buckets_, std::nullopt));
  (void)scheduler_->Step(StepBegan{});
  ready_.assign(parameters_.size(), 0);
  used_.assign(parameters_.size(), 1);
  ready_order_.clear();
  ready_times_.clear();
}

void DataParallelStep::ZeroGradients() {
  DDPRUN_CHECK(state_ == State::kInStep && ready_order_.empty(),
               "ZeroGradients() after Ready() or outside a step");
  for (size_t i = 0; i < parameters_.size(); ++i) SetToZero(gradient(i));
}

void DataParallelStep::Ready(size_t i) {
  DDPRUN_CHECK(i < parameters_.size(), "no such gradient");
  DDPRUN_CHECK(state_ == State::kInStep && ready_[i] == 0,
               "gradient " << parameters_[i].name << " became ready twice in a step, or outside a step");
  ready_[i] = 1;
  ready_order_.push_back(i);
  ready_times_.push_back(Clock::now());
  Submit(i, true);
}

void DataParallelStep::Submit(size_t i, bool ready) {
  const DefaultFloatingPointMode mode;
  const Parameter& p = parameters_[i];
  const int64_t count = p.value.count;
  const Tensor slot = InSlot(i, count), sent = SentSlot(i, count);
  if (!ready) {
    SetToZero(slot);
    SetToZero(sent);  // what earlier steps left is kept for a step that has a gradient
  } else {
    if (p.gradient.data != nullptr) Copy(p.gradient, slot);
    const float divisor = DividesFirst(slot.dtype) ? static_cast<float>(comm_.size()) : 1;
    if (sent.dtype != slot.dtype) Compress(slot, divisor, ResidualOf(i), sent);
  }
  if (options_.unused_parameters) SetElement(SentSlot(i, count + 1), count, ready ? 1 : 0);
  for (const size_t bucket : scheduler_->Step(GradBecameReady{layout_.slots[i].position}).buckets) {
    if (options_.overlap) {
      Launch(bucket);
    } else {
      launchable_.push_back(bucket);
    }
  }
}

void DataParallelStep::Launch(size_t bucket) {
  const ReduceOp op = DividesFirst(layout_.buckets[bucket].dtype) ? ReduceOp::kSum : options_.op;
  timings_[bucket].started = Clock::now();
  pending_.push_back(comm_.AllReduce(SentBucket(bucket), op));
}

Status DataParallelStep::Finish(const FinishOptions& options) {
  DDPRUN_CHECK(state_ == State::kInStep, "Finish() without Begin()");
  const DefaultFloatingPointMode mode;
  const TimePoint deadline = DeadlineAfter(options_.timeout);
  norm_ = 0;
  unused_.clear();
  Status status = CheckOptions(options);
  if (status.ok()) status = SubmitMissing();
  if (!status.ok()) {
    comm_.Abort(status.message());  // the other ranks would wait
    for (Work& work : pending_) (void)work.Wait(Clock::now());
  } else {
    status = Reduce(options, deadline);
  }
  pending_.clear();
  launchable_.clear();
  ++num_steps_;
  if (status.ok()) status = PlanAhead();
  state_ = status.ok() ? State::kIdle : State::kFailed;
  return WithContext(status, "reducing gradients");
}

Status DataParallelStep::CheckOptions(const FinishOptions& options) const {
  if (!(options.clip_norm >= 0)) return InvalidArgumentError(StrCat("clip_norm is ", options.clip_norm));
  if (options.optimizer == nullptr) return OkStatus();
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
  Status status;
  for (size_t b = 0; b < pending_.size(); ++b) {
    // After an error, the communicator is dead, so the waits for the remaining buckets fail immediately.
    status.Update(pending_[b].Wait(deadline));
    if (!status.ok()) continue;
    const Operation* operation = WorkAccess::OperationOf(pending_[b]);
    timings_[b].reduced = operation->ended().value_or(Clock::now());
    for (const size_t i : layout_.buckets[b].parameters) {
      Receive(i);
      if (!clips) Deliver(i, options, true);
    }
  }
  DDPRUN_RETURN_IF_ERROR(status);
  std::ranges::sort(unused_);
  if (clips) Clip(options);
  return OkStatus();
}

void DataParallelStep::Receive(size_t i) {
  const int64_t count = parameters_[i].value.count;
  const Tensor slot = InSlot(i, count), sent = SentSlot(i, count);
  if (sent.dtype != slot.dtype) Decompress(sent, slot);
  if (!options_.unused_parameters || ElementAt(SentSlot(i, count + 1), count) != 0) return;
  used_[i] = 0;
  unused_.push_back(i);
}

void DataParallelStep::Deliver(size_t i, const FinishOptions& options, bool update) {
  const Parameter& p = parameters_[i];
  const Tensor slot = InSlot(i, p.value.count);
  if (p.gradient.data != nullptr) Copy(slot, p.gradient);
  if (update && options.optimizer != nullptr && used_[i] != 0)
    options.optimizer->Update(i, slot, options.step);
}

void DataParallelStep::Clip(const FinishOptions& options) {
  GlobalNorm norm;
  for (size_t i = 0; i < parameters_.size(); ++i) norm.Add(InSlot(i, parameters_[i].value.count));
  norm_ = norm.value();
  const bool finite = std::isfinite(norm_);
  const bool exceeds = finite && norm_ > options.clip_norm;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (exceeds) Multiply(options.clip_norm / norm_, InSlot(i, parameters_[i].value.count));
    Deliver(i, options, finite);
  }
}

std::vector<size_t> DataParallelStep::ReadyOrder() const {
  std::vector<size_t> order = ready_order_;
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (ready_[i] == 0) order.push_back(i);
  }
  return order;
}

Status DataParallelStep::PlanAhead() {
  const bool fixed = options_.bucket_bytes > 0;
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
