// Work that may block on a file system, in a thread of its own.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/alive.h"
#include "base/time.h"

namespace ddprun {

// One for each place that may stall independently of the others: a file system that does not answer delays
// only work that was queued here. The thread starts with the first job.
//   Order:   jobs run one after the other, in the order of Do; each `done` comes after its job, in that
//   order. Threads: that of the io_context, from which `done` and all waiters are called, never from inside a
//   call.
//            Not to be destroyed from one of them.
class DiskThread {
 public:
  using Work = absl::AnyInvocable<void()>;

  // Memory that jobs may hold before it is full: while the disk takes something every kStall, so little that
  // it stays in the processor's caches; and when it does not.
  static constexpr size_t kMovingBytes = 1 << 20;
  static constexpr size_t kMaxBytes = 32 << 20;
  static constexpr Duration kStall = milliseconds(20);

  explicit DiskThread(boost::asio::io_context& io);
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;
  // Drops jobs that have not begun. Does not wait for the thread: a job that runs goes on after the destructor.
  ~DiskThread();

  // Runs `work` in the thread; without a thread (the system refuses one) in this call.
  //   work:  owns what it touches: it may outlive this object. It is destroyed in the thread.
  //   bytes: memory that it holds.
  void Do(Work work, Work done = nullptr, size_t bytes = 0);

  // Of jobs that are not done.
  size_t bytes() const { return bytes_; }
  bool full() const { return bytes_ >= (stalled_ ? kMaxBytes : kMovingBytes); }
  bool idle() const { return unfinished_ == 0; }
  // `ready` is called once, when it is not full.
  void WhenRoom(std::function<void()> ready);

  // `done` gets true when all jobs are done, or false when none has ended for as long as `limit`. One at a
  // time.
  void Finish(Duration limit, std::function<void(bool)> done);

 private:
  struct Job;
  struct Shared;

  bool Start();
  void AwaitBell();
  void OnBell();
  void ServeWaiters();
  void WatchForStall();
  void WatchProgress();
  static void Run(const std::shared_ptr<Shared>& shared);

  boost::asio::io_context& io_;
  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this
  boost::asio::posix::stream_descriptor bell_;
  bool awaiting_bell_ = false;
  size_t bytes_ = 0;
  size_t unfinished_ = 0;
  int64_t finished_ = 0;  // jobs so far
  std::vector<std::function<void()>> room_waiters_;
  bool stalled_ = false;
  bool watching_ = false;  // stall_ runs
  boost::asio::steady_timer stall_;
  std::function<void(bool)> finish_;
  Duration limit_ = {};
  boost::asio::steady_timer progress_;
  Alive alive_;
};

}  // namespace ddprun
