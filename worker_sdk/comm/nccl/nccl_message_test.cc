// Errors, deadlines and ends of messages of memory of GPUs, with a thread for each rank. The stand-in ends the test if anything is left
// at exit, or if a copy uses memory that was freed. gpu_contract.h has the cases without errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/event.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"
#include "worker_sdk/comm/nccl/testing/stand_in_functions.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclMessageTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

using ::testing::HasSubstr;

constexpr size_t kLarge = 3 << 20;  // more than the windows of both ends and what is between them

std::vector<uint8_t> Bytes(size_t n, uint8_t value) { return std::vector<uint8_t>(n, value); }

// Work that is put into the stream later waits until this object is destroyed.
class Hold {
 public:
  explicit Hold(const Stream& stream)
      : hold_(FindInStandIn<decltype(StandInHold)>("libcuda.so.1", "StandInHold")(stream.handle)) {}
  ~Hold() { Release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void Release() {
    if (hold_ != nullptr)
      FindInStandIn<decltype(StandInRelease)>("libcuda.so.1",
                                              "StandInRelease")(std::exchange(hold_, nullptr));
  }

 private:
  void* hold_;
};

// On one node, and on two.
class NcclMessageTest : public testing::TestWithParam<int> {
 protected:
  static void WithTwoRanks(const std::function<void(GpuRank&)>& body, Duration timeout = seconds(60)) {
    WithGpuRanks({.size = 2, .num_nodes = GetParam(), .timeout = timeout}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Nodes, NcclMessageTest, testing::Values(1, 2));

TEST_P(NcclMessageTest, DifferentSizesFailOnBothRanks) {
  WithTwoRanks([](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1, 2, 3});
    Work work = gpu.comm.rank() == 0
                    ? gpu.comm.Send(tensor, 1, gpu.on())
                    : gpu.comm.Receive({tensor.data, 2, tensor.dtype, tensor.device}, 0, gpu.on());
    const Status status = gpu.comm.rank() == 0 ? gpu.comm.Receive(tensor, 1, gpu.on()).Wait() : work.Wait();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("the calls of round 7 differ: message 0 from rank 0 to rank 1 is send "
                          "of 3 float32 on rank 0, receive of 2 float32 on rank 1"));
    EXPECT_EQ(gpu.comm.status(), status);
  });
}

TEST_P(NcclMessageTest, TheDeadlineNamesTheRankThatDoesNotSend) {
  WithTwoRanks([](GpuRank& gpu) {
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kDeadlineExceeded);
      return;
    }
    Work work = gpu.comm.Receive(gpu.Put<float>({1}), 1, gpu.on());
    const Status status = work.Wait(DeadlineAfter(milliseconds(50)));
    EXPECT_EQ(status.message(),
              "rank 0 of round 7 gave up operation 0 (message 0 from rank 1 to rank 0), waiting for rank 1");
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(work.WaitOn(gpu.stream()), status);
    EXPECT_EQ(gpu.comm.Send(gpu.Put<float>({1}), 1, gpu.on()).Wait(), status);
  });
}

TEST_P(NcclMessageTest, AMessageThatOnlyAStreamWaitsForHasTheTimeoutOfTheCommunicator) {
  WithTwoRanks(
      [](GpuRank& gpu) {
        const Tensor tensor = gpu.Put(Bytes(100, 1));
        if (gpu.comm.rank() == 1) {
          EXPECT_EQ(gpu.comm.Barrier().Wait(TimePoint::max()).code(), StatusCode::kDeadlineExceeded);
          return;
        }
        EXPECT_EQ(gpu.comm.Receive(tensor, 1, gpu.on()).WaitOn(gpu.stream()).code(),
                  StatusCode::kDeadlineExceeded);
      },
      milliseconds(300));
}

// The last copy is queued, and the payload does not fit between the ranks.
TEST_P(NcclMessageTest, ASendThatOnlyAStreamWaitsForHasTheTimeoutOfTheCommunicator) {
  WithTwoRanks(
      [](GpuRank& gpu) {
        if (gpu.comm.rank() == 1) {
          EXPECT_EQ(gpu.comm.Barrier().Wait(TimePoint::max()).code(), StatusCode::kDeadlineExceeded);
          return;
        }
        // Sockets have room for more than a large message.
        std::vector<Work> works;
        for (int i = 0; i < 30; ++i) works.push_back(gpu.comm.Send(gpu.Put(Bytes(kLarge, 1)), 1, gpu.on()));
        EXPECT_EQ(works.back().WaitOn(gpu.stream()).code(), StatusCode::kDeadlineExceeded);
      },
      milliseconds(500));
}

TEST_P(NcclMessageTest, TheDeadlineNamesTheStreamThatDoesNotGetToTheMessage) {
  if (!OnStandIn()) GTEST_SKIP() << "holds a stream back, as only the stand-in does";
  for (const bool sends : {true, false}) {
    SCOPED_TRACE(sends);
    WithTwoRanks([&](GpuRank& gpu) {
      std::vector<uint8_t> on_host(10);
      if (gpu.comm.rank() == 1) {
        Work work = sends ? gpu.comm.Receive(View(on_host), 0) : gpu.comm.Send(View(on_host), 0);
        EXPECT_EQ(work.Wait().code(), sends ? StatusCode::kDeadlineExceeded : StatusCode::kOk);
        EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kDeadlineExceeded);
        return;
      }
      const Tensor tensor = gpu.Put(on_host);
      const Hold hold(gpu.stream());
      Work work = sends ? gpu.comm.Send(tensor, 1, gpu.on()) : gpu.comm.Receive(tensor, 1, gpu.on());
      const Status status = work.Wait(DeadlineAfter(milliseconds(300)));
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_EQ(
          status.message(),
          sends ? "rank 0 of round 7 gave up operation 0 (message 0 from rank 0 to rank 1), waiting for the "
                  "work in the stream before message 0 from rank 0 to rank 1"
                : "rank 0 of round 7 gave up message 0 from rank 1 to rank 0, waiting for the work in the "
                  "stream before it");
    });
  }
}

TEST_P(NcclMessageTest, AHeldMessageIsNotOvertakenByOneOfTheHostNorHoldsUpAnotherDirection) {
  if (!OnStandIn()) GTEST_SKIP() << "holds a stream back, as only the stand-in does";
  WithTwoRanks([](GpuRank& gpu) {
    std::vector<uint8_t> second = Bytes(1000, 2);
    if (gpu.comm.rank() == 0) {
      const Tensor out = gpu.Put(Bytes(1000, 1)), in = gpu.Put(Bytes(1000, 0));
      gpu.Synchronize();
      Hold hold(gpu.stream());
      Work held = gpu.comm.Send(out, 1, gpu.on());
      Work later = gpu.comm.Send(View(second), 1);
      EXPECT_EQ(gpu.comm.Receive(in, 1, {.stream = gpu.AnotherStream()}).Wait(), OkStatus());
      EXPECT_FALSE(held.Done());
      EXPECT_FALSE(later.Done());
      // It is sent although its stream was held back when it started.
      hold.Release();
      EXPECT_EQ(later.Wait(), OkStatus());
      EXPECT_EQ(held.Wait(), OkStatus());
      EXPECT_EQ(gpu.Get<uint8_t>(in), Bytes(1000, 3));
    } else {
      const Tensor first = gpu.Put(Bytes(1000, 0));
      EXPECT_EQ(gpu.comm.Send(gpu.Put(Bytes(1000, 3)), 0, gpu.on()).Wait(), OkStatus());
      Work work = gpu.comm.Receive(first, 0, gpu.on());
      EXPECT_EQ(gpu.comm.Receive(View(second), 0).Wait(), OkStatus());
      EXPECT_EQ(work.Wait(), OkStatus());
      EXPECT_EQ(gpu.Get<uint8_t>(first), Bytes(1000, 1));
      EXPECT_EQ(second, Bytes(1000, 2));
    }
  });
}

TEST_P(NcclMessageTest, WhatARankHasSentBeforeItLeftArrives) {
  WithTwoRanks([](GpuRank& gpu) {
    const Tensor tensor = gpu.Put(Bytes(100'000, gpu.comm.rank() == 0 ? 0 : 4)), one = gpu.Put(Bytes(1, 0));
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Receive(one, 0, gpu.on()).Wait(), OkStatus());
      EXPECT_EQ(gpu.comm.Send(tensor, 0, gpu.on()).Wait(), OkStatus());
      gpu.comm = {};
      return;
    }
    EXPECT_EQ(gpu.comm.Send(one, 1, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.comm.Receive(tensor, 1, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<uint8_t>(tensor), Bytes(100'000, 4));
    const Status status = gpu.comm.Receive(tensor, 1, gpu.on()).Wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "rank 1 of round 7 has left");
    EXPECT_EQ(gpu.comm.Send(tensor, 1, gpu.on()).Wait(), status);
  });
}

TEST_P(NcclMessageTest, AnAbortEndsMessagesOnAllRanks) {
  WithTwoRanks([](GpuRank& gpu) {
    const Tensor tensor = gpu.Put(Bytes(kLarge, 1));
    Work work = gpu.comm.rank() == 0 ? gpu.comm.Send(tensor, 1, gpu.on()) : Work();
    if (gpu.comm.rank() == 1) {
      work = gpu.comm.Receive(tensor, 0, gpu.on());
      gpu.comm.Abort("the data is bad");
    }
    const Status status = work.Wait();  // OK if it was complete before
    EXPECT_TRUE(status.ok() || status == gpu.comm.status()) << status;
    const Status later = gpu.comm.Receive(tensor, 1 - gpu.comm.rank(), gpu.on()).Wait();
    EXPECT_EQ(later.code(), StatusCode::kAborted);
    EXPECT_THAT(later.message(), HasSubstr("rank 1 of round 7 gave up: the data is bad"));
  });
}

TEST_P(NcclMessageTest, MessagesInFlightAreAbortedByTheDestructor) {
  WithTwoRanks([](GpuRank& gpu) {
    const Tensor tensor = gpu.Put(Bytes(kLarge, 1));
    Work work = gpu.comm.Receive(tensor, 1 - gpu.comm.rank(), gpu.on());
    if (gpu.comm.rank() == 0) gpu.comm = {};
    const Status status = work.Wait();
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(
        status.message(),
        HasSubstr("rank 0 of round 7 gave up: its communicator was destroyed with operations pending"));
  });
}

// The stand-in ends the process if a copy uses the memory when it is freed.
TEST_P(NcclMessageTest, NothingUsesTheMemoryOfAMessageThatHasFailed) {
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    WithTwoRanks([&](GpuRank& gpu) {
      StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(gpu.context(), 2 * kLarge);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const Tensor tensor{memory->data(), 2 * kLarge, DType::kUInt8, gpu.comm.device()};
      gpu.Write(tensor, Bytes(2 * kLarge, 1), gpu.stream());
      gpu.Synchronize();
      const bool sends = gpu.comm.rank() == 0;
      Work work = sends ? gpu.comm.Send(tensor, 1, gpu.on()) : gpu.comm.Receive(tensor, 0, gpu.on());
      // Usually in flight then; all orders are allowed.
      if (!sends) poll(nullptr, 0, 1 + i % 5);
      if (!sends) gpu.comm.Abort("enough");
      const Status status = work.Wait();
      memory = DeviceMemory();
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kAborted) << status;
    });
  }
}

// Rank 1 starts one message of the two that each rank waits for. The memory is freed at once.
TEST_P(NcclMessageTest, RetireEndsMessagesAndNothingUsesTheirMemory) {
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    std::atomic<int> num_retired{0}, num_checked{0};
    Event all_retired, all_checked;
    WithTwoRanks([&](GpuRank& gpu) {
      StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(gpu.context(), 2 * kLarge);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const Tensor sent{memory->data(), kLarge, DType::kUInt8, gpu.comm.device()};
      const Tensor received{static_cast<char*>(memory->data()) + kLarge, kLarge, DType::kUInt8,
                            gpu.comm.device()};
      gpu.Write(sent, Bytes(kLarge, 1), gpu.stream());
      const int other = 1 - gpu.comm.rank();
      std::vector<Work> works;
      works.push_back(gpu.comm.Receive(received, other, gpu.on()));
      if (gpu.comm.rank() == 1) works.push_back(gpu.comm.Send(sent, other, gpu.on()));
      if (i % 2 == 0) (void)works.back().Wait(DeadlineAfter(milliseconds(i)));
      gpu.fabric->Retire(AbortedError(StrCat("rank ", gpu.comm.rank(), " of round 7 gave up: over")));
      for (Work& work : works) {
        EXPECT_TRUE(work.Done());
        (void)work.Wait();
        (void)work.WaitOn(gpu.stream());
      }
      EXPECT_FALSE(works[0].Wait().ok() && gpu.comm.rank() == 1);
      gpu.Synchronize();
      memory = DeviceMemory();
      EXPECT_EQ(gpu.comm.Receive(received, other, gpu.on()).Wait(), gpu.comm.status());
      if (!OnStandIn()) return;  // the ranks may be processes
      if (++num_retired == 2) all_retired.Set();
      EXPECT_TRUE(all_retired.WaitUntil(DeadlineAfter(seconds(60))));
      const StandInCounts left = CountsOfStandIn();
      EXPECT_EQ(left.events, 0);
      EXPECT_EQ(left.streams, 4);  // of the test
      if (++num_checked == 2) all_checked.Set();
      EXPECT_TRUE(all_checked.WaitUntil(DeadlineAfter(seconds(60))));
    });
  }
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
