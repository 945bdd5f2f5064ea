// A communicator. A thread does what calls start, after random delays, so that a call of a non-blocking communicator is still
// in progress after it has returned: its operation may not yet be in the stream.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/delays.h"
#include "worker_sdk/testing/gpu/driver.h"
#include "worker_sdk/testing/gpu/nccl/declarations.h"
#include "worker_sdk/testing/gpu/nccl/mesh.h"
#include "worker_sdk/testing/gpu/nccl/operation.h"

namespace ddprun::stand_in {

// A batch and where it runs.
struct Launch {
  const char* call;
  std::shared_ptr<WorkQueue> queue;
  std::shared_ptr<Batch> batch;
};

// Misuse, besides what functions say: a call while another one is in progress, or while another thread is in a call; a call
// after the end. Exceptions: Abort, AsyncError.
//   Threads: safe, so that misuse can be detected.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Starts to connect with the other ranks.
  static std::shared_ptr<Communicator> Start(const char* call, int num_ranks, const UniqueId& id, int rank,
                                             int device, bool blocking);

  bool blocking() const { return blocking_; }
  int device() const { return device_; }
  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }

  // While it lives, a thread is in a call.
  class Call {
   public:
    Call(Communicator& communicator, const char* name);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Communicator& communicator_;
  };

  // Queues work; the call is in progress until that is done.
  void Add(const char* call, std::vector<Launch> launches);
  // Waits for all operations of all ranks; the call is in progress until then.
  void StartFinalize(const char* call);
  // If the communicator is blocking, waits until no call is in progress. Otherwise returns ncclInProgress.
  ncclResult_t Result();

  ncclResult_t AsyncError();
  // AsyncError returns `error` from now on, unless there was an earlier one.
  void Fail(ncclResult_t error);
  void Register(void* handle, Region region);
  // False if there is no such registration.
  bool Deregister(void* handle);

  // Finalizes the communicator if that has not been done, which blocks. Misuse after an error.
  void Destroy(const char* call);
  // Ends everything. When it returns, operations use no memory, and streams go on. May be called while other calls run.
  void Abort(const char* call);

 private:
  using Clock = std::chrono::steady_clock;
  using Job = std::function<bool()>;  // false: the call stays in progress for ever

  Communicator(int num_ranks, int rank, int device, bool blocking);
  void Post(const char* call, Job job);
  void Work();
  bool Connect(const UniqueId& id);
  bool Queue(const std::vector<Launch>& launches);
  void Execute(const std::list<std::shared_ptr<Batch>>::iterator& entry, uint64_t turn, bool lost);
  bool Finalize();
  void FailLater(ncclResult_t error);
  ncclResult_t CurrentError();  // REQUIRES: mutex_ is held
  ncclResult_t WaitUntilDone(std::unique_lock<std::mutex>& lock);
  void End();

  const int num_ranks_, rank_, device_;
  const bool blocking_;
  Cancel cancel_;
  Mesh mesh_;      // used by one job or one operation at a time
  Delays delays_;  // of the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  int pending_ = 0;                    // jobs that are not done
  bool working_ = false;               // the thread runs a job
  const char* in_progress_ = nullptr;  // the last call, until ncclCommGetAsyncError returned ncclSuccess
  int calls_ = 0;                      // threads that are in a call
  std::list<std::shared_ptr<Batch>> batches_;
  uint64_t next_turn_ = 0, turn_ = 0;  // batches run one after the other, over all streams
  bool executing_ = false;
  bool finalized_ = false, aborted_ = false, ended_ = false;
  ncclResult_t error_ = ncclSuccess;
  Clock::time_point error_at_ = Clock::time_point::max();
  std::map<void*, Region> registered_;
  std::thread thread_;
};

}  // namespace ddprun::stand_in
