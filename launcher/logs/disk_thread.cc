#include "launcher/logs/disk_thread.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "os/descriptor.h"

namespace ddprun {

struct DiskThread::Job {
  Work work;
  Work done;
  size_t bytes = 0;
};

struct DiskThread::Shared {
  std::thread thread;  // accessed only on the io_context
  UniqueFd ringer;     // the thread's duplicate of bell_
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Job> queue ABSL_GUARDED_BY(mutex);
  std::deque<Job> finished ABSL_GUARDED_BY(mutex);
  bool rung ABSL_GUARDED_BY(mutex) = false;  // bell_ has been signaled since `finished` was last read
  bool busy ABSL_GUARDED_BY(mutex) = false;
  bool stop ABSL_GUARDED_BY(mutex) = false;
};

DiskThread::DiskThread(boost::asio::io_context& io)
    : io_(io), shared_(std::make_shared<Shared>()), bell_(io), stall_(io), progress_(io) {}

DiskThread::~DiskThread() {
  alive_.End();
  if (!shared_->thread.joinable()) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->wake.notify_one();
  shared_->thread.detach();
}

bool DiskThread::Start() {
  if (shared_->thread.joinable()) return true;
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd ringer(bell ? fcntl(bell.get(), F_DUPFD_CLOEXEC, 3) : -1);
  if (!ringer) return false;
  shared_->ringer = std::move(ringer);
  // Block all signals in the new thread, because the io_context's thread handles them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    shared_->thread = std::thread([shared = shared_] { Run(shared); });
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!shared_->thread.joinable()) return false;
  bell_.assign(bell.Release());
  return true;
}

void DiskThread::Do(Work work, Work done, size_t bytes) {
  if (!Start()) {
    work();
    if (!done) return;
    const auto later = std::make_shared<Work>(std::move(done));
    return boost::asio::post(io_, alive_.Guard([later] { (*later)(); }));
  }
  bytes_ += bytes;
  ++unfinished_;
  bool sleeps;
  {
    const std::lock_guard lock(shared_->mutex);
    sleeps = shared_->queue.empty() && !shared_->busy;
    shared_->queue.push_back({std::move(work), std::move(done), bytes});
  }
  if (sleeps) shared_->wake.notify_one();
  AwaitBell();
}

void DiskThread::Run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    while (shared->queue.empty() && !shared->stop) shared->wake.wait(lock);
    if (shared->stop) return shared->queue.clear();
    Job job = std::move(shared->queue.front());
    shared->queue.pop_front();
    shared->busy = true;
    lock.unlock();
    job.work();
    job.work = nullptr;
    lock.lock();
    shared->busy = false;
    shared->finished.push_back(std::move(job));
    if (!std::exchange(shared->rung, true)) eventfd_write(shared->ringer.get(), 1);
  }
}

// Called only while there are unfinished jobs, so that an idle DiskThread does not keep io_.run() from
// returning.
void DiskThread::AwaitBell() {
  if (std::exchange(awaiting_bell_, true)) return;
  bell_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   alive_.Guard([this](const boost::system::error_code& error) {
                     awaiting_bell_ = false;
                     if (!error) OnBell();
                   }));
}

void DiskThread::OnBell() {
  eventfd_t ignored;
  eventfd_read(bell_.native_handle(), &ignored);
  std::deque<Job> finished;
  {
    const std::lock_guard lock(shared_->mutex);
    finished.swap(shared_->finished);
    shared_->rung = false;
  }
  for (const Job& job : finished) bytes_ -= job.bytes;
  unfinished_ -= finished.size();
  finished_ += static_cast<int64_t>(finished.size());
  stalled_ = false;
  if (!idle()) AwaitBell();
  for (Job& job : finished) {
    if (job.done) job.done();
  }
  ServeWaiters();
}

void DiskThread::WhenRoom(std::function<void()> ready) {
  room_waiters_.push_back(std::move(ready));
  if (!full()) return boost::asio::post(io_, alive_.Guard([this] { ServeWaiters(); }));
  if (!stalled_ && !watching_) WatchForStall();
}

// Sets stalled_ if no job finishes within kStall. Continues to check while there are waiters for room.
void DiskThread::WatchForStall() {
  watching_ = true;
  stall_.expires_after(kStall);
  stall_.async_wait(alive_.Guard([this, before = finished_](const boost::system::error_code& error) {
    watching_ = false;
    if (error || room_waiters_.empty()) return;
    if (finished_ > before) return WatchForStall();
    stalled_ = true;
    ServeWaiters();
  }));
}

// Calls the waiters for room in order, as long as full() is false; each waiter may add jobs. Then completes a
// pending Finish if all jobs are finished.
void DiskThread::ServeWaiters() {
  std::vector<std::function<void()>> waiters = std::exchange(room_waiters_, {});
  size_t served = 0;
  while (served < waiters.size() && !full()) waiters[served++]();
  room_waiters_.insert(room_waiters_.begin(),
                       std::make_move_iterator(waiters.begin() + static_cast<ptrdiff_t>(served)),
                       std::make_move_iterator(waiters.end()));
  if (!room_waiters_.empty() && !stalled_ && !watching_) WatchForStall();
  if (!finish_ || !idle()) return;
  progress_.cancel();
  std::exchange(finish_, nullptr)(true);
}

void DiskThread::Finish(Duration limit, std::function<void(bool)> done) {
  finish_ = std::move(done);
  limit_ = limit;
  WatchProgress();
  boost::asio::post(io_, alive_.Guard([this] { ServeWaiters(); }));
}

void DiskThread::WatchProgress() {
  progress_.expires_after(limit_);
  progress_.async_wait(alive_.Guard([this, before = finished_](const boost::system::error_code& error) {
    if (error || !finish_) return;
    if (finished_ > before) return WatchProgress();
    std::exchange(finish_, nullptr)(false);
  }));
}

}  // namespace ddprun
