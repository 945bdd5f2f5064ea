#include "worker_sdk/device/cuda/blocking_calls.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/event.h"
#include "worker_sdk/core/deadline.h"

namespace ddprun {
namespace {

struct Task {
  std::function<void()> call;
  std::shared_ptr<Event> returned;
};

}  // namespace

struct BlockingCalls::State {
  std::mutex mu;
  std::condition_variable changed;
  std::deque<Task> tasks;  // the first one is being made
  bool late = false;       // a call has exceeded its limit, and the thread has not been idle since
  bool stop = false;
  Event stopped;
};

BlockingCalls::BlockingCalls() : state_(std::make_shared<State>()), thread_(Loop, state_) {}

BlockingCalls::~BlockingCalls() {
  {
    const std::lock_guard<std::mutex> lock(state_->mu);
    state_->stop = true;
    state_->changed.notify_one();
  }
  if (state_->stopped.WaitUntil(DeadlineAfter(kExitLimit)))
    thread_.join();
  else
    thread_.detach();
}

bool BlockingCalls::Run(std::function<void()> call, Duration limit) {
  const auto returned = std::make_shared<Event>();
  {
    const std::lock_guard<std::mutex> lock(state_->mu);
    state_->tasks.push_back({std::move(call), returned});
    state_->changed.notify_one();
    if (state_->late) return false;
  }
  if (returned->WaitUntil(DeadlineAfter(limit))) return true;
  const std::lock_guard<std::mutex> lock(state_->mu);
  if (returned->IsSet()) return true;
  state_->late = true;
  return false;
}

void BlockingCalls::Loop(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mu);
  while (true) {
    state->changed.wait(lock, [&] { return state->stop || !state->tasks.empty(); });
    if (state->tasks.empty()) break;
    const Task task = std::move(state->tasks.front());
    lock.unlock();
    task.call();
    lock.lock();
    state->tasks.pop_front();
    if (state->tasks.empty()) state->late = false;
    task.returned->Set();
  }
  state->stopped.Set();
}

}  // namespace ddprun
