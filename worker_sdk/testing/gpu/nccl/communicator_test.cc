// Communicators of one rank or of two threads: calls in progress, the end, and mistakes.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/nccl/ranks_for_test.h"

namespace ddprun::stand_in {
namespace {

class CommunicatorTest : public ::testing::Test {
 protected:
  CommunicatorTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
  }

  static ncclResult_t AllReduceInPlace(const Rank& rank, const DeviceArray<int>& array, size_t count = 1) {
    return ncclAllReduce(array.pointer(), array.pointer(), count, ncclInt32, ncclSum, rank.comm,
                         rank.stream.get());
  }
};
using CommunicatorDeathTest = CommunicatorTest;

TEST_F(CommunicatorTest, OneRank) {
  Rank rank(NewId(), 1, 0);
  EXPECT_EQ(rank.AllReduce<int>({1, 2}, ncclInt32), (std::vector{1, 2}));
}

TEST_F(CommunicatorTest, TwoThreads) {
  const ncclUniqueId id = NewId();
  const auto body = [&](int number) {
    Rank rank(id, 2, number, /*device=*/number);
    EXPECT_EQ(rank.AllReduce<int>({1, 2 + number}, ncclInt32), (std::vector{2, 5}));
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

TEST_F(CommunicatorTest, ABlockingCommunicatorReturnsSuccess) {
  const ScopedContext context;
  const ScopedStream stream;
  const DeviceArray<int> array({7}, stream);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, NewId(), 0, nullptr), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(array.pointer(), array.pointer(), 1, ncclInt32, ncclSum, comm, stream.get()),
            ncclSuccess);
  EXPECT_EQ(array.Read(stream), std::vector{7});
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(CommunicatorTest, AGroupIsOneCall) {
  Rank rank(NewId(), 1, 0);
  const DeviceArray<int> a({1}, rank.stream), b({2}, rank.stream);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  ExpectAccepted(AllReduceInPlace(rank, a));
  ExpectAccepted(ncclSend(a.pointer(), 1, ncclInt32, 0, rank.comm, rank.stream.get()));
  ExpectAccepted(ncclRecv(b.pointer(), 1, ncclInt32, 0, rank.comm, rank.stream.get()));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(Await(rank.comm), ncclSuccess);
  EXPECT_EQ(b.Read(rank.stream), std::vector{1});
}

TEST_F(CommunicatorTest, AbortEndsAnInitThatMissesARank) {
  Rank rank(NewId(), 2, 0, 0, Rank::Init::kStart);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  rank.Abort();
}

TEST_F(CommunicatorTest, AbortOfAnotherThreadEndsABlockingInit) {
  const ncclUniqueId id = NewId();
  const ScopedContext context;
  ncclComm_t comm = nullptr;
  std::atomic<bool> started = false;
  std::thread other([&] {
    const ScopedContext context_of_thread;
    // In a group the communicator exists before the call that blocks.
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, nullptr), ncclSuccess);
    started = true;
    EXPECT_EQ(ncclGroupEnd(), ncclInternalError);
  });
  while (!started) std::this_thread::yield();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  other.join();
}

TEST_F(CommunicatorTest, AbortEndsOperationsAndReleasesTheirMemory) {
  const ncclUniqueId id = NewId();
  std::promise<void> checked;
  std::thread other([&] {
    Rank second(id, 2, 1, 1);
    checked.get_future().wait();
    second.Abort();
  });
  Rank first(id, 2, 0);
  {
    const DeviceArray<int> array({5}, first.stream), queued({6}, first.stream);
    EXPECT_EQ(AllReduceInPlace(first, array), ncclInProgress);  // the other rank does not come
    EXPECT_EQ(Await(first.comm), ncclSuccess);
    EXPECT_EQ(AllReduceInPlace(first, queued), ncclInProgress);
    EXPECT_EQ(Await(first.comm), ncclSuccess);
    EXPECT_EQ(cuStreamQuery(first.stream.get()), CUDA_ERROR_NOT_READY);
    first.Abort();
    first.stream.Synchronize();
    EXPECT_EQ(array.Read(first.stream), std::vector{5});
  }
  checked.set_value();
  other.join();
}

// The operation is behind other work in its stream, and starts after the abort.
TEST_F(CommunicatorTest, AbortReleasesTheMemoryOfOperationsThatHaveNotStarted) {
  Rank rank(NewId(), 1, 0);
  ScopedHold hold(rank.stream);
  {
    const DeviceArray<int> array(1);
    EXPECT_EQ(AllReduceInPlace(rank, array), ncclInProgress);
    EXPECT_EQ(Await(rank.comm), ncclSuccess);
    rank.Abort();
  }
  hold.Release();
  rank.stream.Synchronize();
}

TEST_F(CommunicatorTest, TwoRanksOnOneDeviceAreAnError) {
  const ncclUniqueId id = NewId();
  const auto body = [&](int number) {
    Rank rank(id, 2, number, 0, Rank::Init::kStart);
    EXPECT_EQ(Await(rank.comm), ncclInvalidUsage);
    EXPECT_STREQ(ncclGetLastError(rank.comm), ncclGetErrorString(ncclInvalidUsage));
    rank.Abort();
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

TEST_F(CommunicatorTest, RefusesInvalidArguments) {
  Rank rank(NewId(), 1, 0);
  const DeviceArray<int> array({1}, rank.stream);
  ncclComm_t none = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&none, 1, ncclUniqueId{}, 0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankConfig(&none, 1, NewId(), 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(array.pointer(), array.pointer(), 1, ncclInt32, 1, rank.comm, rank.stream.get()),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(array.pointer(), array.pointer(), 1, ncclFloat8e4m3, ncclSum, rank.comm,
                          rank.stream.get()),
            ncclInvalidArgument);
}

TEST_F(CommunicatorTest, RegistersMemory) {
  Rank rank(NewId(), 1, 0);
  const DeviceArray<int> array({1}, rank.stream);
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(rank.comm, array.pointer(), sizeof(int), &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(rank.comm, handle), ncclSuccess);
}

// A caller that records its event too early sees it happen before the operation. The stand-in queues the operation only when
// ncclCommGetAsyncError returns ncclSuccess.
TEST_F(CommunicatorTest, AnOperationIsInTheStreamWhenTheCallIsNoLongerInProgress) {
  Rank rank(NewId(), 1, 0);
  const ScopedEvent event;
  for (int i = 0; i < 50; ++i) {
    const DeviceArray<int> in({i}, rank.stream), out(1);
    ScopedHold hold(rank.stream);
    EXPECT_EQ(ncclAllReduce(in.pointer(), out.pointer(), 1, ncclInt32, ncclSum, rank.comm, rank.stream.get()),
              ncclInProgress);
    EXPECT_EQ(Await(rank.comm), ncclSuccess);
    Ok(cuEventRecord(event.get(), rank.stream.get()));
    EXPECT_EQ(cuEventQuery(event.get()), CUDA_ERROR_NOT_READY);
    hold.Release();
    while (cuEventQuery(event.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    EXPECT_EQ(out.Read(rank.stream), std::vector{i});
  }
}

TEST_F(CommunicatorDeathTest, NextCallWhileOneIsInProgress) {
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        const DeviceArray<int> array({1}, rank.stream);
        AllReduceInPlace(rank, array);
        AllReduceInPlace(rank, array);
      },
      "misuse: ncclAllReduce: ncclAllReduce is in progress: ncclCommGetAsyncError has not returned "
      "ncclSuccess");
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0, 0, Rank::Init::kStart);
        ncclCommFinalize(rank.comm);
      },
      "misuse: ncclCommFinalize: ncclCommInitRankConfig is in progress");
}

TEST_F(CommunicatorDeathTest, CallsAfterTheEnd) {
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        ncclCommAbort(rank.comm);
        ncclCommDestroy(rank.comm);
      },
      "misuse: ncclCommDestroy: no such communicator");
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        ncclCommFinalize(rank.comm);
        Await(rank.comm);
        const DeviceArray<int> array({1}, rank.stream);
        AllReduceInPlace(rank, array);
      },
      "misuse: ncclAllReduce: the communicator was finalized");
}

TEST_F(CommunicatorDeathTest, InitWithoutAContext) {
  EXPECT_DEATH(
      {
        Ok(cuInit(0));
        ncclComm_t comm = nullptr;
        ncclCommInitRankConfig(&comm, 1, NewId(), 0, nullptr);
      },
      "misuse: ncclCommInitRankConfig: the thread has no current context");
}

TEST_F(CommunicatorDeathTest, StreamOfAnotherDevice) {
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        const ScopedContext one(1);
        const ScopedStream stream;
        ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, rank.comm, stream.get());
      },
      "misuse: ncclAllReduce: the stream is of device 1, the communicator of device 0");
}

TEST_F(CommunicatorDeathTest, WrongMemory) {
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        const DeviceArray<int> array({1}, rank.stream);
        AllReduceInPlace(rank, array, 2);
      },
      "misuse: ncclAllReduce: 8 bytes from byte 0 of an allocation of 4");
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        const DeviceArray<int> array({1}, rank.stream);
        StandInHold(rank.stream.get());
        AllReduceInPlace(rank, array);
      },
      "misuse: cuMemFree_v2: queued work or a registration uses the 4 bytes");
}

TEST_F(CommunicatorDeathTest, FreeingRegisteredMemory) {
  EXPECT_DEATH(
      {
        Rank rank(NewId(), 1, 0);
        const DeviceArray<int> array({1}, rank.stream);
        void* handle = nullptr;
        ncclCommRegister(rank.comm, array.pointer(), sizeof(int), &handle);
      },
      "misuse: cuMemFree_v2: queued work or a registration uses the 4 bytes");
}

TEST_F(CommunicatorDeathTest, CommunicatorLeftAtExit) {
  EXPECT_EXIT(
      {
        // Reachable, so that LeakSanitizer does not report it.
        [[maybe_unused]] static Rank* volatile left = nullptr;
        left = new Rank(NewId(), 1, 0);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGABRT), "left at exit: contexts: 1, streams: 1, .*communicators: 1");
}

TEST_F(CommunicatorDeathTest, OneCallHangs) {
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_HANG", "ncclAllReduce", 1);
        setenv("DDPRUN_STAND_IN_HANG_AT", "2", 1);
        bool first = false;
        ncclResult_t second = ncclSuccess;
        {
          Rank rank(NewId(), 1, 0);
          const DeviceArray<int> array({1}, rank.stream);
          AllReduceInPlace(rank, array);
          first = Await(rank.comm) == ncclSuccess;
          AllReduceInPlace(rank, array);
          rank.stream.Synchronize();  // it is not in the stream
          ncclCommGetAsyncError(rank.comm, &second);
          rank.Abort();
        }
        std::exit(first && second == ncclInProgress && !HasFailure() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(CommunicatorDeathTest, OneCallFails) {
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_FAIL", "ncclAllReduce", 1);
        setenv("DDPRUN_STAND_IN_FAIL_AT", "2", 1);
        setenv("DDPRUN_STAND_IN_FAIL_WITH", "3", 1);
        ncclResult_t second = ncclSuccess;
        {
          Rank rank(NewId(), 1, 0);
          const DeviceArray<int> array({1}, rank.stream);
          AllReduceInPlace(rank, array);
          EXPECT_EQ(Await(rank.comm), ncclSuccess);
          rank.stream.Synchronize();
          second = ncclAllReduce(array.pointer(), array.pointer(), 1, ncclInt32, ncclSum, rank.comm,
                                 rank.stream.get());
        }
        std::exit(second == ncclInternalError && !HasFailure() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(CommunicatorTest, ATestFailsCommunicators) {
  Rank rank(NewId(), 1, 0);
  StandInFailCommunicators(ncclSystemError);
  StandInFailCommunicators(ncclInternalError);
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &result), ncclSuccess);
  EXPECT_EQ(result, ncclSystemError);
  rank.Abort();
}

TEST_F(CommunicatorDeathTest, ALostDeviceIsAnAsynchronousError) {
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_LOST_AFTER", "2", 1);
        ncclResult_t result = ncclSuccess;
        {
          Rank rank(NewId(), 1, 0);
          const DeviceArray<int> array({1}, rank.stream);
          AllReduceInPlace(rank, array);
          while (result == ncclSuccess || result == ncclInProgress) ncclCommGetAsyncError(rank.comm, &result);
          rank.Abort();
        }
        std::exit(result == ncclUnhandledCudaError && !HasFailure() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace ddprun::stand_in
