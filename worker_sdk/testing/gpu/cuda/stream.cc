#include "worker_sdk/testing/gpu/cuda/stream.h"

#include <atomic>
#include <thread>
#include <utility>

#include "worker_sdk/testing/gpu/delays.h"
#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {

std::shared_ptr<Stream> Stream::Start(Context& context) {
  static std::atomic<uint64_t> streams = 0;
  const auto stream = std::shared_ptr<Stream>(new Stream(context));
  std::thread([stream, number = ++streams] { stream->Run(number); }).detach();
  return stream;
}

void Stream::Push(const char* call, Work work) { Add(call, {std::move(work), true}); }

void Stream::Record(const char* call, std::shared_ptr<Mark> mark) {
  Add(call, {[mark = std::move(mark)](bool) { mark->Set(); }, false});
}

void Stream::WaitFor(const char* call, std::shared_ptr<Mark> mark) {
  Add(call, {[mark = std::move(mark)](bool) { mark->Wait(); }, false});
}

void Stream::Add(const char* call, Task task) {
  std::lock_guard lock(mutex_);
  if (closed_) Misuse(call, ": the stream was destroyed before the work was queued");
  queue_.push_back(std::move(task));
  ++num_queued_;
  changed_.notify_all();
}

bool Stream::IsIdle() {
  std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void Stream::Synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::AwaitQueued() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, until = num_queued_] { return num_done_ >= until; });
}

void Stream::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::Run(uint64_t number) {
  Delays delays(number);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !queue_.empty() || closed_; });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    delays.Pause();
    task.work(task.is_operation && !context_.BeginOperation());
    task.work = nullptr;  // releases memory before the next task, which may be the mark of an event
    lock.lock();
    busy_ = false;
    ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace ddprun::stand_in
