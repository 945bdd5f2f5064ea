#include "worker_sdk/comm/nccl/nccl_operation.h"

#include <algorithm>
#include <chrono>

#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// How long the group's thread may take to end an operation whose deadline has passed: it asks which ranks are stopped, which
// takes 200 ms, and aborts the communicator, for which NCCL waits for its own threads.
constexpr Duration kEndLimit = seconds(30);

}  // namespace

NcclOperation::NcclOperation(std::shared_ptr<NcclShared> shared, const internal::Call& the_call,
                             const void* the_in, void* the_out, Duration timeout, const Device& device,
                             NcclEvents events)
    : Operation(timeout),
      call(the_call),
      in(the_in),
      out(the_out),
      shared_(std::move(shared)),
      device_(device),
      events_(std::make_shared<NcclEvents>(std::move(events))) {}

// REQUIRES: NcclShared::mu is held.
void NcclOperation::LimitTo(TimePoint deadline) {
  if (deadline >= view.deadline) return;
  view.deadline = deadline;
  shared_->changed.notify_all();
}

Status NcclOperation::Wait(TimePoint deadline) {
  const internal::AwaitedOperation shown(call);
  std::unique_lock lock(shared_->mu);
  LimitTo(deadline);
  const auto finished = [this] { return result_.has_value(); };
  const TimePoint limit = deadline > TimePoint::max() - kEndLimit
                              ? TimePoint::max()
                              : std::max(deadline, std::chrono::steady_clock::now()) + kEndLimit;
  if (limit == TimePoint::max()) {
    shared_->changed.wait(lock, finished);
  } else if (!shared_->changed.wait_until(lock, limit, finished)) {
    return InternalError(StrCat(
        Describe(call),
        " has not ended 30 s after its deadline; the GPU may still access its memory: exit the process"));
  }
  return *result_;
}

bool NcclOperation::Done() {
  const std::lock_guard lock(shared_->mu);
  return result_.has_value();
}

Status NcclOperation::WaitOn(const Stream& stream) {
  if (stream.device != device_) {
    return InvalidArgumentError(
        StrCat("WaitOn: the stream must be of GPU ", device_.index, ", as the operation's memory"));
  }
  std::shared_ptr<NcclEvents> events;
  {
    std::unique_lock lock(shared_->mu);
    // Nothing else limits an operation for which the host does not wait.
    LimitTo(DeadlineAfter(timeout()));
    const auto decided = [this] {
      return result_.has_value() || view.state == OperationView::State::kInFlight;
    };
    const TimePoint limit = DeadlineAfter(timeout() + kEndLimit);
    if (!shared_->changed.wait_until(lock, limit, decided)) {
      return InternalError(
          StrCat(Describe(call), " was not queued on the GPU 30 s after its deadline: exit the process"));
    }
    if (result_) return *result_;  // also OK: the work is complete
    events = events_;
  }
  return events->after.MakeWait(static_cast<CUstream>(stream.handle));
}

std::optional<TimePoint> NcclOperation::ended() const {
  const std::lock_guard lock(shared_->mu);
  if (!result_) return std::nullopt;
  return ended_;
}

void NcclOperation::Finish(const Status& status) {
  std::shared_ptr<NcclEvents> events;  // destroyed last, without the lock
  const std::lock_guard lock(shared_->mu);
  events = std::move(events_);
  ended_ = std::chrono::steady_clock::now();
  result_ = status;
  shared_->changed.notify_all();
}

bool NcclOperation::IsPending() const {
  std::shared_ptr<NcclEvents> events;
  {
    const std::lock_guard lock(shared_->mu);
    if (result_) return false;
    if (view.state != OperationView::State::kInFlight) return true;
    events = events_;
  }
  return !events->after.Happened().value_or(false);
}

void NcclOperation::SetInFlight() {
  const std::lock_guard lock(shared_->mu);
  view.state = OperationView::State::kInFlight;
  shared_->changed.notify_all();
}

}  // namespace ddprun
