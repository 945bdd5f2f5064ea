// Tests the NCCL backend on the stand-in for CUDA and NCCL, with a thread for each rank. Without a toolkit: that it says so.
#include "worker_sdk/comm/nccl/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
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

class NcclGroupTest : public testing::TestWithParam<GpuWorld> {};

INSTANTIATE_TEST_SUITE_P(Worlds, NcclGroupTest,
                         testing::Values(GpuWorld{1}, GpuWorld{2}, GpuWorld{3}, GpuWorld{4}, GpuWorld{8},
                                         GpuWorld{2, 2}, GpuWorld{4, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.size) + "on" +
                                  std::to_string(info.param.num_nodes);
                         });

// All values are small integers, so that sums are exact in any order.
TEST_P(NcclGroupTest, OperationsHaveTheirResults) {
  const int n = GetParam().size;
  WithGpuRanks(GetParam(), [n](GpuRank& gpu) {
    Communicator& comm = gpu.comm;
    const int r = comm.rank();
    EXPECT_EQ(comm.device(), (Device{DeviceType::kCuda, GpuOf(r)}));
    const auto mine = static_cast<float>(r + 1);
    const auto sum = static_cast<float>(n * (n + 1) / 2);
    const Tensor reduced = gpu.Put<float>({mine, 2 * mine, 3});
    EXPECT_EQ(comm.AllReduce(reduced, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get(reduced), (std::vector<float>{sum, 2 * sum, 3.0f * n}));

    const Tensor in = gpu.Put<float>({mine, -mine}), out = gpu.Put<float>({0, 0});
    EXPECT_EQ(comm.AllReduce(in, out, ReduceOp::kMax, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get(out), (std::vector<float>{static_cast<float>(n), -1}));
    EXPECT_EQ(comm.AllReduce(in, out, ReduceOp::kMin, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get(out), (std::vector<float>{1, -static_cast<float>(n)}));
    const Tensor twos = gpu.Put<int64_t>({2});
    EXPECT_EQ(comm.AllReduce(twos, ReduceOp::kProduct, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<int64_t>(twos), std::vector<int64_t>{int64_t{1} << n});
    const Tensor mean = gpu.Put<double>({static_cast<double>(2 * n)});
    EXPECT_EQ(comm.AllReduce(mean, ReduceOp::kMean, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<double>(mean), std::vector<double>{2.0 * n});

    const int root = n - 1;
    const Tensor at_root = gpu.Put<float>({0});
    EXPECT_EQ(comm.Reduce(gpu.Put<float>({mine}), at_root, ReduceOp::kSum, root, gpu.on()).Wait(),
              OkStatus());
    if (r == root) {
      EXPECT_EQ(gpu.Get(at_root), std::vector<float>{sum});
    }
    const Tensor sent = gpu.Put<int32_t>({r, r});
    EXPECT_EQ(comm.Broadcast(sent, root, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<int32_t>(sent), (std::vector<int32_t>{root, root}));

    std::vector<int32_t> each, all, to_each, from_each;
    for (int i = 0; i < n; ++i) {
      each.push_back(i * n);  // its sum: i * n * n
      all.push_back(i + 1);
      to_each.push_back(100 * r + i);
      from_each.push_back(100 * i + r);
    }
    const Tensor part = gpu.Put<int32_t>({0});
    EXPECT_EQ(comm.ReduceScatter(gpu.Put(each), part, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<int32_t>(part), std::vector<int32_t>{r * n * n});
    const Tensor gathered = gpu.Put(std::vector<int32_t>(n));
    EXPECT_EQ(comm.AllGather(gpu.Put<int32_t>({r + 1}), gathered, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<int32_t>(gathered), all);
    const Tensor exchanged = gpu.Put(std::vector<int32_t>(n));
    EXPECT_EQ(comm.AllToAll(gpu.Put(to_each), exchanged, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get<int32_t>(exchanged), from_each);

    // Operations on the host go on beside them.
    std::vector<float> host = {mine};
    EXPECT_EQ(comm.AllReduce(View(host), ReduceOp::kSum).Wait(), OkStatus());
    EXPECT_EQ(host, std::vector<float>{sum});
    EXPECT_EQ(comm.status(), OkStatus());
  });
}

// The host waits only at the end: the order is that of the streams.
TEST_P(NcclGroupTest, StreamsWaitForOperations) {
  const int n = GetParam().size;
  WithGpuRanks(GetParam(), [n](GpuRank& gpu) {
    constexpr int kNum = 20;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kNum; ++i) {
      tensors.push_back(gpu.Put<float>({static_cast<float>(i)}));
      works.push_back(gpu.comm.AllReduce(tensors.back(), ReduceOp::kSum, gpu.on()));
    }
    for (Work& work : works) EXPECT_EQ(work.WaitOn(gpu.stream()), OkStatus());
    for (int i = 0; i < kNum; ++i) {
      EXPECT_EQ(gpu.Get(tensors[i]), std::vector<float>{static_cast<float>(i * n)}) << i;
      EXPECT_EQ(works[i].Wait(), OkStatus());
      EXPECT_TRUE(works[i].Done());
    }
    EXPECT_EQ(gpu.comm.Barrier().WaitOn(gpu.stream()).code(), StatusCode::kInvalidArgument);
  });
}

TEST_P(NcclGroupTest, AllocatesZeroedMemory) {
  WithGpuRanks(GetParam(), [](GpuRank& gpu) {
    const StatusOr<Buffer> buffer = gpu.comm.Allocate(DType::kFloat32, 1000, gpu.comm.device());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(gpu.Get(buffer->tensor()), std::vector<float>(1000));
    EXPECT_EQ(gpu.comm.AllReduce(buffer->tensor(), ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
  });
}

TEST_P(NcclGroupTest, OperationsWithoutElementsComplete) {
  WithGpuRanks(GetParam(), [](GpuRank& gpu) {
    const Tensor none{nullptr, 0, DType::kFloat32, gpu.comm.device()};
    EXPECT_EQ(gpu.comm.AllReduce(none, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.comm.AllGather(none, none, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.comm.AllToAll(none, none, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.comm.Broadcast(none, 0, gpu.on()).Wait(), OkStatus());
    EXPECT_TRUE(gpu.comm.Allocate(DType::kFloat32, 0, gpu.comm.device()).ok());
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

TEST_P(NcclGroupTest, PartsHaveOperationsOfTheirOwn) {
  WithGpuRanks(GetParam(), [](GpuRank& gpu) {
    const int color = gpu.comm.rank() % 2;
    StatusOr<Communicator> part = gpu.comm.Split(color);
    ASSERT_TRUE(part.ok()) << part.status();
    const Tensor ones = gpu.Put<float>({1});
    EXPECT_EQ(part->AllReduce(ones, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    EXPECT_EQ(gpu.Get(ones), std::vector<float>{static_cast<float>(part->size())});
    const StatusOr<Communicator> none = gpu.comm.Split(Communicator::kNoColor);
    EXPECT_TRUE(none.ok() && none->size() == 0);
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
    EXPECT_EQ(status.message(),
              "rank 0 of round 7 gave up operation 0 on the GPU (all-reduce (sum) of 2 float32)");
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

TEST(NcclGroupFaultTest, RefusesMessagesAndStreamsOfNoGpu) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    const Status status = gpu.comm.Send(tensor, 1 - gpu.comm.rank(), gpu.on()).Wait();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("send: messages between GPUs are not supported: use memory of the host"));
  });
}

TEST(NcclGroupFaultTest, NamesTheGpuThatDoesNotExist) {
  EXPECT_THAT(OpenNcclDevice({DeviceType::kCuda, 9}, 0).status().message(),
              HasSubstr("there is no GPU 9: this process sees "));
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
