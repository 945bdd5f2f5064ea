#include "worker_sdk/comm/awaited_operation.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/operation_page.h"
#include "base/worker_evidence.h"
#include "worker_sdk/comm/call.h"

namespace ddprun::internal {
namespace {

using Shown = WorkerEvidence::Operation;

Call CallOf(OpKind kind, uint64_t index, Purpose purpose = Purpose::kNone) {
  Call call;
  call.kind = kind;
  call.index = index;
  call.purpose = purpose;
  return call;
}

TEST(AwaitedOperationTest, ShowsTheOperationAndItsEnd) {
  const int fd = OperationPageFd();
  ASSERT_TRUE(IsMemory(fd));
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << "programs that the worker starts must not get it";
  {
    const AwaitedOperation shown(CallOf(OpKind::kAllReduce, 8812));
    EXPECT_EQ(ReadOperation(fd), (Shown{.kind = "all-reduce", .number = 8812, .in_flight = true}));
  }
  EXPECT_EQ(ReadOperation(fd), (Shown{.kind = "all-reduce", .number = 8812, .in_flight = false}));
}

TEST(AwaitedOperationTest, AnOperationIsInFlightWhileAnyThreadWaits) {
  const int fd = OperationPageFd();
  const AwaitedOperation shown(CallOf(OpKind::kBroadcast, 3));
  std::thread([&] {
    const AwaitedOperation other(CallOf(OpKind::kReceive, 9));
    EXPECT_EQ(ReadOperation(fd), (Shown{.kind = "receive", .number = 9, .in_flight = true}));
  }).join();
  EXPECT_TRUE(ReadOperation(fd)->in_flight);
}

void Pass(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

TEST(AwaitedOperationTest, CountsTheTimeInWhichAnyThreadWaits) {
  const int fd = OperationPageFd();
  const auto call = CallOf(OpKind::kAllReduce, 1);
  const auto begin = std::chrono::steady_clock::now();
  { const AwaitedOperation earlier(call); }
  const Duration before = *ReadWaited(fd);
  {
    const AwaitedOperation first(call);
    const AwaitedOperation second(call);
    Pass(std::chrono::milliseconds(20));
    EXPECT_EQ(*ReadWaited(fd), before) << "the wait goes on";
  }
  const Duration waited = *ReadWaited(fd) - before;
  EXPECT_GE(waited, std::chrono::milliseconds(20));
  EXPECT_LE(waited, std::chrono::steady_clock::now() - begin) << "not twice";
  Pass(std::chrono::milliseconds(5));
  EXPECT_EQ(*ReadWaited(fd) - before, waited);
}

TEST(AwaitedOperationTest, NamesWhatTheLibraryItselfHasStarted) {
  {
    const AwaitedOperation shown(CallOf(OpKind::kAllGather, 1, Purpose::kSplit));
    EXPECT_EQ(ReadOperation(OperationPageFd())->kind, "split");
  }
  const AwaitedOperation shown(CallOf(OpKind::kAllGather, 2, Purpose::kAllocate));
  EXPECT_EQ(ReadOperation(OperationPageFd())->kind, "allocate");
}

// The last test of this process.
TEST(AwaitedOperationTest, WaitsAreUnknownForEver) {
  WaitsAreUnknown();
  { const AwaitedOperation shown(CallOf(OpKind::kAllReduce, 1)); }
  EXPECT_EQ(ReadWaited(OperationPageFd()), std::nullopt);
  EXPECT_TRUE(ReadOperation(OperationPageFd()));
}

}  // namespace
}  // namespace ddprun::internal
