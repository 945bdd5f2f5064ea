// A stream: a thread that executes a queue in order, with random delays.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "worker_sdk/testing/gpu/cuda/context.h"
#include "worker_sdk/testing/gpu/cuda/mark.h"
#include "worker_sdk/testing/gpu/driver.h"

namespace ddprun::stand_in {

// After the device is lost, work has no effect, but marks are still set, so that the streams of other devices go on.
//   Threads: safe.
class Stream final : public WorkQueue {
 public:
  // The thread lives until the stream is closed and its queue is empty.
  static std::shared_ptr<Stream> Start(Context& context);

  void Push(const char* call, Work work) override;
  int device() const override { return context_.device(); }
  Context& context() const { return context_; }

  // Sets `mark` after the work that is queued now.
  void Record(const char* call, std::shared_ptr<Mark> mark);
  // Later work starts after `mark` is set.
  void WaitFor(const char* call, std::shared_ptr<Mark> mark);

  bool IsIdle();
  void Synchronize();
  // Waits for the work that is queued now.
  void AwaitQueued();
  // The queue is still executed, but nothing may be added.
  void Close();

 private:
  struct Task {
    Work work;
    bool is_operation = false;
  };

  explicit Stream(Context& context) : context_(context) {}
  void Add(const char* call, Task task);
  void Run(uint64_t number);

  Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  uint64_t num_queued_ = 0, num_done_ = 0;
  bool busy_ = false;  // a task is being executed
  bool closed_ = false;
};

}  // namespace ddprun::stand_in
