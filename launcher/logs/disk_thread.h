// A thread for jobs that may block on a file system.
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

// Use a separate object for each file system, so that a file system that does not respond delays only its own
// jobs. The thread starts with the first job.
//   Order:   jobs run one at a time, in the order of the calls to Do. Their `done` callbacks run in the same
//            order.
//   Threads: the thread that runs the io_context. Callbacks run on the same thread, but never during a call
//            to this object. They must not destroy this object.
class DiskThread {
 public:
  using Work = absl::AnyInvocable<void()>;

  // Limits for the memory that unfinished jobs hold; full() is true at the limit. kMovingBytes applies while
  // jobs finish at intervals of at most kStall; this amount fits into the processor's caches. kMaxBytes
  // applies while the disk stalls.
  static constexpr size_t kMovingBytes = 1 << 20;
  static constexpr size_t kMaxBytes = 32 << 20;
  static constexpr Duration kStall = milliseconds(20);

  explicit DiskThread(boost::asio::io_context& io);
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;
  // Drops jobs that have not started. Does not wait for a running job, which continues in the thread.
  ~DiskThread();

  // Runs `work` in the thread, or within this call if the system cannot create a thread. Then calls `done`.
  //   work:  must own all data that it uses, because it may outlive this object; destroyed in the thread.
  //   bytes: size of the memory that `work` holds.
  void Do(Work work, Work done = nullptr, size_t bytes = 0);

  // Returns the size of the memory that unfinished jobs hold.
  size_t bytes() const { return bytes_; }
  bool full() const { return bytes_ >= (stalled_ ? kMaxBytes : kMovingBytes); }
  bool idle() const { return unfinished_ == 0; }
  // Calls `ready` once, as soon as full() is false.
  void WhenRoom(std::function<void()> ready);

  // Calls `done` with true when all jobs are finished, or with false when a period of `limit` passes in which
  // no job finishes. At most one Finish may be pending.
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
  const std::shared_ptr<Shared> shared_;        // shared with the thread, which may outlive this object
  boost::asio::posix::stream_descriptor bell_;  // eventfd that the thread signals when jobs have finished
  bool awaiting_bell_ = false;
  size_t bytes_ = 0;
  size_t unfinished_ = 0;
  int64_t finished_ = 0;  // number of finished jobs
  std::vector<std::function<void()>> room_waiters_;
  bool stalled_ = false;
  bool watching_ = false;  // stall_ is pending
  boost::asio::steady_timer stall_;
  std::function<void(bool)> finish_;
  Duration limit_ = {};
  boost::asio::steady_timer progress_;
  Alive alive_;
};

}  // namespace ddprun
