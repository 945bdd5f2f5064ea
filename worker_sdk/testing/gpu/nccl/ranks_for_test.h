// Ranks of a communicator, for the stand-in's tests: each has a context, a stream and a non-blocking communicator.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {

// Waits until no call is in progress. Returns the asynchronous error.
inline ncclResult_t Await(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    std::this_thread::yield();
  }
  return result;
}

// What calls within a group return.
inline void ExpectAccepted(ncclResult_t result) {
  EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
}

inline ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

inline ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

// Expects that no operation has failed: it is finalized and destroyed with the object, unless Abort was called.
class Rank {
 public:
  enum class Init { kAwait, kStart };

  Rank(const ncclUniqueId& id, int num_ranks, int rank, int device = 0, Init init = Init::kAwait)
      : context(device) {
    ncclConfig_t config = NonBlocking();
    EXPECT_EQ(ncclCommInitRankConfig(&comm, num_ranks, id, rank, &config), ncclInProgress);
    if (init == Init::kAwait) {
      EXPECT_EQ(Await(comm), ncclSuccess);
    }
  }
  ~Rank() {
    if (comm == nullptr) return;
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    EXPECT_EQ(Await(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void Abort() {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    comm = nullptr;
  }

  // in[i] + in[i] of the other ranks; blocks.
  template <typename T>
  std::vector<T> AllReduce(const std::vector<T>& in, ncclDataType_t dtype, ncclRedOp_t op = ncclSum) {
    const DeviceArray<T> array(in, stream);
    EXPECT_EQ(ncclAllReduce(array.pointer(), array.pointer(), in.size(), dtype, op, comm, stream.get()),
              ncclInProgress);
    EXPECT_EQ(Await(comm), ncclSuccess);
    return array.Read(stream);
  }

  const ScopedContext context;
  const ScopedStream stream;
  ncclComm_t comm = nullptr;
};

// Calls body(id, rank) in a process for each rank. Returns the status of each, as waitpid does: 0 if the body returned without
// a failed expectation, and nothing was left.
// The parent calls `after_start` when all processes have started.
//   REQUIRES:  the process has one thread.
template <typename Body>
std::vector<int> StatusOfProcesses(
    int num_ranks, Body body, const std::function<void()>& after_start = [] {}) {
  std::vector<int> pipes(2 * num_ranks);
  for (int i = 0; i < num_ranks; ++i) EXPECT_EQ(pipe(&pipes[2 * i]), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    ncclUniqueId id;
    if (rank == 0) {
      id = NewId();
      for (int i = 1; i < num_ranks; ++i) EXPECT_EQ(write(pipes[2 * i + 1], &id, sizeof id), sizeof id);
    } else {
      EXPECT_EQ(read(pipes[2 * rank], &id, sizeof id), sizeof id);
    }
    body(id, rank);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  after_start();
  std::vector<int> status(num_ranks, -1);
  for (int i = 0; i < num_ranks; ++i) EXPECT_EQ(waitpid(children[i], &status[i], 0), children[i]);
  for (const int fd : pipes) close(fd);
  return status;
}

}  // namespace ddprun::stand_in
