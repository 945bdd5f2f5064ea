// Steps that all ranks commit, or none: DataParallelOptions::atomic_steps. See docs/decisions/0015-in-place-recovery.md.
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/data_parallel_step.h"

namespace ddprun::internal {

Status DataParallelStep::Commit(const FinishOptions& options, TimePoint deadline) {
  const auto prepare = [&]() -> Status {
    if (on_host()) return OkStatus();
    DDPRUN_RETURN_IF_ERROR(ops_->Await(options.stream, deadline, "the reduced gradients"));
    return comm_.status();  // an operation that has failed does not keep the stream waiting
  };
  if (Status ready = prepare(); !ready.ok()) {
    comm_.Abort(ready.message());  // the other ranks would wait
    return ready;
  }
  prepared_ = {.optimizer = options.optimizer, .options = options.step, .updates = norm_is_finite_};
  prepared_->options.stream = options.stream;
  // A rank that leaves the barrier knows that all ranks are prepared. If the barrier fails, this rank does not know whether
  // another one has left it.
  DDPRUN_RETURN_IF_ERROR(comm_.Barrier().Wait(deadline));
  return CommitPrepared();
}

Status DataParallelStep::CommitPrepared() {
  DDPRUN_CHECK(prepared_, "no step is prepared");
  const Prepared prepared = *std::exchange(prepared_, std::nullopt);
  committed_ = prepared.options.step;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!prepared.updates || used_[i] == 0) continue;
    prepared.optimizer->Update(i, InSlot(i, parameters_[i].value.count), prepared.options);
  }
  DDPRUN_RETURN_IF_ERROR(prepared.optimizer->status());
  return ops_->Order(prepared.options.stream, ops_->stream());
}

Status DataParallelStep::AwaitWork() {
  return ops_->Await(ops_->stream(), DeadlineAfter(options_.timeout), "the update of the parameters");
}

void DataParallelStep::Release() {
  DDPRUN_CHECK(!prepared_, "a prepared step is neither committed nor dropped");
  EndPending();  // at once: the communicator has ended
  state_ = State::kFailed;
  committed_ = -1;
  arenas_ = {};
  sent_arenas_ = {};
  residuals_ = {};
}

}  // namespace ddprun::internal
