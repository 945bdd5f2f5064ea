// The communicators of this process, and the groups of calls of its threads.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_sdk/testing/gpu/nccl/communicator.h"

namespace ddprun::stand_in {

//   Threads: safe.
class Communicators {
 public:
  // There is one, which is never destroyed.
  static Communicators& Get();

  ncclComm_t Add(std::shared_ptr<Communicator> communicator);
  // Misuse if there is none.
  std::shared_ptr<Communicator> Find(const char* call, ncclComm_t handle);
  void Remove(ncclComm_t handle);
  // Communicator::Fail of all communicators.
  void FailAll(ncclResult_t error);

 private:
  std::mutex mutex_;
  uint64_t next_ = 0x5B00'0000'0000'0000u;  // not an address, so that code which follows a handle crashes
  std::map<ncclComm_t, std::shared_ptr<Communicator>> communicators_;
};

// The calls of one thread between ncclGroupStart and ncclGroupEnd.
//   Threads: each has its own group.
class Group {
 public:
  static Group& OfThread();

  void Start() { ++depth_; }
  // Starts the calls if this is the end of the outermost group. ncclInProgress if a communicator of the group is non-blocking.
  ncclResult_t End(const char* call);

  // A communicator that was created in the group.
  void Add(std::shared_ptr<Communicator> communicator) { created_.push_back(std::move(communicator)); }
  void Add(std::shared_ptr<Communicator> communicator, std::shared_ptr<WorkQueue> queue, Operation operation);

 private:
  struct Entry {
    std::shared_ptr<Communicator> communicator;
    std::shared_ptr<WorkQueue> queue;
    std::vector<Operation> operations;
  };

  bool NonBlocking() const;  // whether a communicator of the group is

  int depth_ = 0;
  unsigned calls_ = 0;          // within groups
  std::vector<Entry> entries_;  // one for each pair of a communicator and a stream
  std::vector<std::shared_ptr<Communicator>> created_;
};

}  // namespace ddprun::stand_in
