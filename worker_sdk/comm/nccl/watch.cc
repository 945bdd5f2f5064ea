#include "worker_sdk/comm/nccl/watch.h"

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Question = OperationView::Question;
using State = OperationView::State;

std::optional<size_t> First(std::span<const OperationView> operations, State state) {
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].state == state) return i;
  }
  return std::nullopt;
}

bool Complete(const OperationView& operation) {
  return operation.state == State::kInFlight && operation.happened;
}

Status Stuck(const Status& fabric_error) {
  return InternalError(StrCat(fabric_error.message(),
                              "; ncclCommAbort has not returned since, so NCCL may still access the memory "
                              "of the operation: exit the process"));
}

// Acts on an operation whose deadline has passed: the oldest, because the later ones wait for it. Returns false if there is
// none.
bool ActOnDeadline(std::span<const OperationView> operations, TimePoint now, WatchActions* actions) {
  std::optional<size_t> oldest;
  bool asked = false;
  for (size_t i = 0; i < operations.size(); ++i) {
    const OperationView& operation = operations[i];
    if (Complete(operation) || now < operation.deadline) continue;
    const bool answered = operation.question == Question::kAnswered;
    if (answered &&
        (operation.state != State::kInFlight || now - operation.deadline >= kTimeToNameHungCall)) {
      actions->end_fabric = operation.answer;
      return true;
    }
    if (!oldest) oldest = i;
    asked = asked || operation.question != Question::kNotAsked;
  }
  if (!asked) actions->ask = oldest;
  return oldest.has_value();
}

void ActOnReady(std::span<const OperationView> operations, WatchActions* actions) {
  actions->record = First(operations, State::kCalled);
  if (!actions->record) actions->call = First(operations, State::kQueued);
}

}  // namespace

WatchActions Watch(const GroupView& view, TimePoint now) {
  WatchActions actions;
  const bool aborted = view.comm == CommState::kAborted;
  const bool device_lost = !view.device_error.ok();
  if (view.fabric_ended && (aborted || device_lost)) {
    for (size_t i = 0; i < view.operations.size(); ++i) actions.finish.push_back({i, view.fabric_error});
    return actions;
  }
  if (view.comm == CommState::kStuck) {
    for (size_t i = 0; i < view.operations.size(); ++i)
      actions.finish.push_back({i, Stuck(view.fabric_error)});
    return actions;
  }
  const bool usable = view.comm == CommState::kInitializing || view.comm == CommState::kReady ||
                      view.comm == CommState::kInProgress;
  for (size_t i = 0; usable && !device_lost && i < view.operations.size(); ++i) {
    if (Complete(view.operations[i])) actions.finish.push_back({i, OkStatus()});
  }
  if (view.fabric_ended) {
    actions.abort = view.comm != CommState::kAborting;
    return actions;
  }
  if (device_lost) {
    actions.end_fabric = view.device_error;
    return actions;
  }
  if (view.comm == CommState::kFailed) {
    if (now - view.failed_since >= kTimeToNameDeadPeer) actions.end_fabric = view.comm_error;
    return actions;
  }
  if (ActOnDeadline(view.operations, now, &actions)) return actions;
  if (view.comm == CommState::kReady) ActOnReady(view.operations, &actions);
  return actions;
}

}  // namespace ddprun
