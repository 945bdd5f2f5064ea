#include "worker_sdk/testing/gpu/nccl/communicator.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "worker_sdk/testing/gpu/misuse.h"
#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {
namespace {

uint64_t NextNumber() {
  static std::atomic<uint64_t> communicators = 1'000'000;  // streams have smaller numbers
  return ++communicators;
}

}  // namespace

Communicator::Communicator(int num_ranks, int rank, int device, bool blocking)
    : num_ranks_(num_ranks), rank_(rank), device_(device), blocking_(blocking), delays_(NextNumber()) {}

std::shared_ptr<Communicator> Communicator::Start(const char* call, int num_ranks, const UniqueId& id,
                                                  int rank, int device, bool blocking) {
  const auto made = std::shared_ptr<Communicator>(new Communicator(num_ranks, rank, device, blocking));
  TheDriver().CountCommunicators(device, 1);
  made->Post(call, [self = made.get(), id] { return self->Connect(id); });
  made->thread_ = std::thread([self = made.get()] { self->Work(); });
  return made;
}

Communicator::Call::Call(Communicator& communicator, const char* name) : communicator_(communicator) {
  std::lock_guard lock(communicator_.mutex_);
  if (communicator_.in_progress_ != nullptr)
    Misuse(name, ": ", communicator_.in_progress_,
           " is in progress: ncclCommGetAsyncError has not returned ncclSuccess since");
  if (communicator_.calls_ > 0) Misuse(name, ": another thread is in a call with the same communicator");
  if (communicator_.finalized_ && std::string_view(name) != "ncclCommDestroy")
    Misuse(name, ": the communicator was finalized");
  ++communicator_.calls_;
}

Communicator::Call::~Call() {
  std::lock_guard lock(communicator_.mutex_);
  --communicator_.calls_;
  communicator_.changed_.notify_all();
}

void Communicator::Post(const char* call, Job job) {
  std::lock_guard lock(mutex_);
  if (aborted_) return;
  if (TheSettings().Hangs(call)) {
    job = [this, job = std::move(job)] {
      cancel_.Wait(TheSettings().hang_ms);
      return !cancel_.fired() && job();
    };
  }
  jobs_.push_back(std::move(job));
  ++pending_;
  if (!blocking_) in_progress_ = call;
  changed_.notify_all();
}

void Communicator::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || aborted_ || ended_; });
    if (aborted_ || ended_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    working_ = true;
    lock.unlock();
    delays_.Pause();
    const bool done = job();
    lock.lock();
    working_ = false;
    if (done) --pending_;
    changed_.notify_all();
  }
}

bool Communicator::Connect(const UniqueId& id) {
  const Outcome outcome = mesh_.Connect(id, rank_, num_ranks_, device_, cancel_);
  if (outcome == Outcome::kDone && mesh_.SharesDevice()) {
    FailLater(ncclInvalidUsage);
    return false;
  }
  if (outcome == Outcome::kPeerDied && !TheSettings().silent_deaths) FailLater(ncclRemoteError);
  return outcome == Outcome::kDone;
}

void Communicator::Add(const char* call, std::vector<Launch> launches) {
  {
    std::lock_guard lock(mutex_);
    if (aborted_) return;
    for (const Launch& launch : launches) batches_.push_back(launch.batch);
  }
  Post(call, [this, launches = std::move(launches)] { return Queue(launches); });
}

bool Communicator::Queue(const std::vector<Launch>& launches) {
  for (const Launch& launch : launches) {
    std::unique_lock lock(mutex_);
    if (aborted_) return false;
    const auto entry = std::find(batches_.begin(), batches_.end(), launch.batch);
    const uint64_t turn = next_turn_++;
    lock.unlock();
    launch.queue->Push(launch.call, [self = shared_from_this(), entry, turn](bool lost) {
      self->Execute(entry, turn, lost);
    });
  }
  return true;
}

void Communicator::Execute(const std::list<std::shared_ptr<Batch>>::iterator& entry, uint64_t turn,
                           bool lost) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == turn || aborted_; });
  if (aborted_) return;  // the batch was dropped
  Batch& batch = **entry;
  if (lost) {  // the turn of later operations never comes
    batch.Drop();
    lock.unlock();
    return FailLater(ncclUnhandledCudaError);
  }
  executing_ = true;
  lock.unlock();
  const Outcome outcome = batch.Run(mesh_, turn, cancel_);
  if (outcome == Outcome::kPeerDied && !TheSettings().silent_deaths) FailLater(ncclRemoteError);
  if (outcome != Outcome::kDone) cancel_.Wait();
  batch.Drop();
  lock.lock();
  executing_ = false;
  if (outcome == Outcome::kDone) {
    batches_.erase(entry);
    ++turn_;
  }
  changed_.notify_all();
}

void Communicator::StartFinalize(const char* call) {
  Post(call, [this] { return Finalize(); });
}

bool Communicator::Finalize() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return batches_.empty() || aborted_; });
    if (aborted_) return false;
  }
  const Outcome outcome = Barrier(mesh_, cancel_);
  if (outcome == Outcome::kPeerDied && !TheSettings().silent_deaths) FailLater(ncclRemoteError);
  std::lock_guard lock(mutex_);
  finalized_ = outcome == Outcome::kDone;
  return finalized_;
}

void Communicator::FailLater(ncclResult_t error) {
  std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return;
  error_ = error;
  error_at_ = Clock::now() + Delays(NextNumber()).OfError();
  changed_.notify_all();
}

void Communicator::Fail(ncclResult_t error) {
  std::lock_guard lock(mutex_);
  if (CurrentError() != ncclSuccess) return;
  error_ = error;
  error_at_ = Clock::now();
  changed_.notify_all();
}

ncclResult_t Communicator::CurrentError() { return Clock::now() < error_at_ ? ncclSuccess : error_; }

ncclResult_t Communicator::WaitUntilDone(std::unique_lock<std::mutex>& lock) {
  while (pending_ > 0 && !aborted_ && CurrentError() == ncclSuccess) {
    if (error_ == ncclSuccess) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, error_at_);
    }
  }
  return aborted_ ? ncclInternalError : CurrentError();
}

ncclResult_t Communicator::Result() {
  std::unique_lock lock(mutex_);
  return blocking_ ? WaitUntilDone(lock) : ncclInProgress;
}

ncclResult_t Communicator::AsyncError() {
  std::lock_guard lock(mutex_);
  if (CurrentError() != ncclSuccess) return CurrentError();
  if (pending_ > 0) return ncclInProgress;
  in_progress_ = nullptr;
  return ncclSuccess;
}

void Communicator::Register(void* handle, Region region) {
  std::lock_guard lock(mutex_);
  registered_.emplace(handle, std::move(region));
}

bool Communicator::Deregister(void* handle) {
  std::lock_guard lock(mutex_);
  return registered_.erase(handle) == 1;
}

void Communicator::Destroy(const char* call) {
  {
    std::unique_lock lock(mutex_);
    if (CurrentError() != ncclSuccess) Misuse(call, ": after an error, only ncclCommAbort may be called");
    if (!finalized_) {
      lock.unlock();
      StartFinalize(call);
      lock.lock();
      changed_.wait(lock, [this] { return finalized_ || aborted_; });
      if (aborted_) return;
    }
    ended_ = true;
    changed_.notify_all();
  }
  End();
}

void Communicator::Abort(const char* call) {
  {
    std::unique_lock lock(mutex_);
    if (aborted_ || ended_) Misuse(call, ": another thread ends the communicator");
    aborted_ = true;
    cancel_.Fire();
    changed_.notify_all();
    changed_.wait(lock, [this] { return !executing_ && !working_ && calls_ == 0; });
    jobs_.clear();
    for (const std::shared_ptr<Batch>& batch : batches_) batch->Drop();
  }
  End();
}

void Communicator::End() {
  thread_.join();
  delays_.Pause();
  mesh_ = Mesh();
  std::lock_guard lock(mutex_);
  registered_.clear();
  TheDriver().CountCommunicators(device_, -1);
}

}  // namespace ddprun::stand_in
