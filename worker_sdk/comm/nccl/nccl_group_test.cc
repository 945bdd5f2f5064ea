// Tests the NCCL backend on the stand-in for CUDA and NCCL, with a thread for each rank. Without a toolkit: that it says so.
#include "worker_sdk/comm/nccl/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/testing/gpu_contract.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclGroupTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

using std::chrono::steady_clock;

const GpuWorld kWorlds[] = {{1}, {2}, {3}, {4}, {8}, {2, 2}, {4, 2}};

std::string NameOf(const GpuWorld& world) {
  return std::to_string(world.size) + "on" + std::to_string(world.num_nodes);
}

class NcclContractTest : public testing::TestWithParam<std::tuple<GpuWorld, GpuContractCase> > {};

INSTANTIATE_TEST_SUITE_P(Worlds, NcclContractTest,
                         testing::Combine(testing::ValuesIn(kWorlds),
                                          testing::ValuesIn(GpuContract().begin(), GpuContract().end())),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + NameOf(std::get<0>(info.param));
                         });

TEST_P(NcclContractTest, Holds) {
  const auto& [world, contract] = GetParam();
  WithGpuRanks(world, contract.check);
}

TEST(NcclGroupTest, EachRankHasItsGpu) {
  WithGpuRanks({3}, [](GpuRank& gpu) {
    EXPECT_EQ(gpu.comm.device(), (Device{DeviceType::kCuda, GpuOf(gpu.comm.rank())}));
  });
}

TEST(NcclGroupFaultTest, AllocationsThatDifferAreRefusedOnAllRanks) {
  WithGpuRanks({3}, [](GpuRank& gpu) {
    const Status status =
        gpu.comm.Allocate(DType::kFloat32, gpu.comm.rank() == 1 ? 6 : 5, gpu.comm.device()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        status.message(),
        "allocate: the ranks of the group differ: rank 0 allocates 5 float32 on its GPU, rank 1 allocates 6 "
        "float32");
    EXPECT_TRUE(gpu.comm.Allocate(DType::kFloat32, 5, gpu.comm.device()).ok());
  });
}

TEST(NcclGroupFaultTest, AnAbortEndsOperationsOnAllRanks) {
  WithGpuRanks({3}, [](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    if (gpu.comm.rank() == 2) {
      gpu.comm.Abort("the data is bad");
      EXPECT_EQ(gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on()).Wait().code(), StatusCode::kAborted);
      return;
    }
    Work work = gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on());
    const Status status = work.Wait();
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(status.message(), HasSubstr("rank 2 of round 7 gave up: the data is bad"));
    EXPECT_EQ(work.WaitOn(gpu.stream()), status);
    EXPECT_EQ(gpu.comm.status(), status);
  });
}

TEST(NcclGroupFaultTest, ARankThatDoesNotComeIsFoundByTheDeadline) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    if (gpu.comm.rank() == 1) {
      // Waits until the other rank has given up.
      EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kDeadlineExceeded);
      return;
    }
    Work work = gpu.comm.AllReduce(gpu.Put<float>({1, 2}), ReduceOp::kSum, gpu.on());
    const Status status = work.Wait(steady_clock::now() + milliseconds(50));
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    // NCCL connects the ranks during their first operation.
    EXPECT_EQ(
        status.message(),
        std::string("rank 0 of round 7 gave up operation 0 on the GPU (all-reduce (sum) of 2 float32)") +
            (OnStandIn() ? "" : ": its call of NCCL has not returned"));
  });
}

TEST(NcclGroupFaultTest, AnOperationThatOnlyAStreamWaitsForHasTheTimeoutOfTheCommunicator) {
  WithGpuRanks({.size = 2, .timeout = milliseconds(300)}, [](GpuRank& gpu) {
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Barrier().Wait(TimePoint::max()).code(), StatusCode::kDeadlineExceeded);
      return;
    }
    const Tensor tensor = gpu.Put<float>({1});
    Work work = gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on());
    // NCCL connects the ranks during their first operation, and queues it only then.
    const StatusCode queued = work.WaitOn(gpu.stream()).code();
    EXPECT_EQ(queued, OnStandIn() ? StatusCode::kOk : StatusCode::kDeadlineExceeded);
    (void)gpu.Get(tensor);  // the stream is not blocked forever
    EXPECT_EQ(gpu.comm.status().code(), StatusCode::kDeadlineExceeded);
  });
}

// NCCL does not notice that a rank has left.
TEST(NcclGroupFaultTest, TheDeadlineNamesARankThatHasLeft) {
  int left[2] = {};
  ASSERT_EQ(pipe(left), 0);
  WithGpuRanks({2}, [&](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    EXPECT_EQ(gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    if (gpu.comm.rank() == 1) {
      gpu.comm = {};  // returns when the other rank has been notified
      EXPECT_EQ(write(left[1], "x", 1), 1);
      return;
    }
    char byte = 0;
    EXPECT_EQ(read(left[0], &byte, 1), 1);
    Work work = gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on());
    const Status status = work.Wait(steady_clock::now() + milliseconds(50));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 of round 7 has left"));
    EXPECT_EQ(gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on()).Wait(), status);
  });
  for (const int end : left) close(end);
}

TEST(NcclGroupFaultTest, OperationsInFlightAreAbortedByTheDestructor) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kAborted);
      return;
    }
    Work work = gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on());
    gpu.comm = {};
    EXPECT_EQ(work.Wait().code(), StatusCode::kAborted);
  });
}

// Freeing memory waits for all work on the GPU, which only the abort ends.
TEST(NcclGroupFaultTest, MemoryThatIsBeingFreedDoesNotDelayTheAbort) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kAborted);
      return;
    }
    std::optional<DeviceMemory> other = *DeviceMemory::Allocate(gpu.context(), 8);
    Work work = gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on());
    EXPECT_EQ(work.WaitOn(gpu.stream()), OkStatus()) << "it is in flight";
    other.reset();
    const auto start = steady_clock::now();
    gpu.comm = {};
    EXPECT_LT(steady_clock::now() - start, seconds(8)) << "an abort has 10 s";
    EXPECT_EQ(work.Wait().code(), StatusCode::kAborted);
  });
}

TEST(NcclGroupFaultTest, ARankWithoutAGpuFailsAllRanks) {
  ConnectGpuRanks(
      {3},
      [](GpuConnection connection) {
        const Status status = connection.comm.status();
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
        EXPECT_EQ(status.message(), "GPU: rank 0 of round 7: no libcuda.so.1");
      },
      FailedPreconditionError("no libcuda.so.1"));
}

TEST(NcclGroupFaultTest, NamesTheGpuThatDoesNotExist) {
  EXPECT_THAT(OpenNcclDevice({DeviceType::kCuda, 9}, 0).status().message(),
              HasSubstr("there is no GPU 9: this process sees "));
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
