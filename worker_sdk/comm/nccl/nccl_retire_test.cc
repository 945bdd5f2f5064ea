// Tests Fabric::Retire with groups that use NCCL, on the stand-in for CUDA and NCCL, with a thread for each rank. The stand-in
// ends the test if anything is left at exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"
#include "worker_sdk/comm/nccl/testing/stand_in_functions.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/testing/gpu/control.h"

namespace ddprun {
namespace {

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclRetireTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;

Status OverFor(int rank) {
  return AbortedError(StrCat("rank ", rank, " of round 7 gave up: the round is over"));
}

int NumThreads() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

void Eventually(const std::function<bool()>& holds, const std::string& what) {
  const TimePoint deadline = Clock::now() + seconds(60);
  while (!holds()) {
    ASSERT_LT(Clock::now(), deadline) << what;
    poll(nullptr, 0, 1);
  }
}

// All ranks have called it when it returns.
class Barrier {
 public:
  explicit Barrier(int num_ranks = kRanks) : num_ranks_(num_ranks) {}
  void Wait() {
    if (++num_arrived_ == num_ranks_) all_.Set();
    EXPECT_TRUE(all_.WaitUntil(Clock::now() + seconds(60)));
  }

 private:
  const int num_ranks_;
  std::atomic<int> num_arrived_{0};
  Event all_;
};

void ExpectHusk(GpuRank& gpu, Communicator& group, int size) {
  EXPECT_EQ(group.size(), size);
  EXPECT_EQ(group.device(), gpu.stream().device);
  const Status end = group.status();
  EXPECT_EQ(end.code(), StatusCode::kAborted);
  EXPECT_THAT(end.message(), HasSubstr("gave up: the round is over"));
  const Tensor tensor = gpu.Put<float>({1});
  Work work = group.AllReduce(tensor, ReduceOp::kSum, gpu.on());
  EXPECT_TRUE(work.Done());
  EXPECT_EQ(work.Wait(), end);
  EXPECT_EQ(work.WaitOn(gpu.stream()), end);
  EXPECT_EQ(group.AllReduce({nullptr, 3, DType::kFloat32, group.device()}, ReduceOp::kSum, gpu.on()).Wait(),
            end);  // refused
  EXPECT_EQ(group.Send(tensor, 0, gpu.on()).Wait(), end);
  EXPECT_EQ(group.Barrier().Wait(), end);
  EXPECT_EQ(group.Allocate(DType::kFloat32, 3, group.device()).status(), WithContext(end, "allocate"));
  EXPECT_EQ(group.Split(0).status(), WithContext(end, "split"));
  group.Abort("too late");
  EXPECT_EQ(group.status(), end);
}

TEST(NcclRetireTest, TheCommunicatorThreadsStreamsAndEventsAreGone) {
  Barrier connected, counted, retired, checked;
  std::atomic<int> threads_of_streams{0};
  WithGpuRanks({kRanks}, [&](GpuRank& gpu) {
    StatusOr<Communicator> part = gpu.comm.Split(gpu.comm.rank() % 2);
    ASSERT_TRUE(part.ok()) << part.status();
    const int part_size = part->size();
    StatusOr<Buffer> buffer = gpu.comm.Allocate(DType::kFloat32, 1000, gpu.comm.device());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    gpu.Write(buffer->tensor(), std::vector<float>(1000, 2), gpu.stream());
    Work finished = part->AllReduce(buffer->tensor(), ReduceOp::kMax, gpu.on());
    EXPECT_EQ(finished.Wait(), OkStatus());
    const int device = gpu.comm.device().index;
    connected.Wait();
    if (device == 0) {
      EXPECT_EQ(CountsOfStandIn().communicators, 2 * kRanks);
    }
    counted.Wait();
    // One rank is missing, so that the others have operations in flight.
    std::optional<Work> pending;
    if (gpu.comm.rank() != 1) pending.emplace(gpu.comm.AllReduce(buffer->tensor(), ReduceOp::kSum, gpu.on()));
    gpu.fabric->Retire(OverFor(gpu.comm.rank()));
    if (pending) {
      EXPECT_TRUE(pending->Done());
      EXPECT_EQ(pending->Wait(), gpu.comm.status());
      EXPECT_EQ(pending->WaitOn(gpu.stream()), gpu.comm.status());
    }
    retired.Wait();
    if (device == 0) {
      const StandInCounts left = CountsOfStandIn();
      EXPECT_EQ(left.communicators, 0);
      EXPECT_EQ(left.events, 0);
      EXPECT_EQ(left.streams, 2 * kRanks);  // of the test
      EXPECT_EQ(left.allocations, kRanks);  // the buffers
    }
    checked.Wait();
    EXPECT_EQ(gpu.Get(buffer->tensor()), std::vector<float>(1000, 2));
    ExpectHusk(gpu, gpu.comm, kRanks);
    ExpectHusk(gpu, *part, part_size);
    EXPECT_EQ(finished.Wait(), OkStatus());
  });
  EXPECT_EQ(CountsOfStandIn().contexts, 0);
}

TEST(NcclRetireTest, ThreadsAreGone) {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first one
  const int before = NumThreads();
  Barrier counted, retired;
  WithGpuRanks({kRanks}, [&](GpuRank& gpu) {
    const Tensor tensor = gpu.Put<float>({1});
    EXPECT_EQ(gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    counted.Wait();
    gpu.fabric->Retire(OverFor(gpu.comm.rank()));
    retired.Wait();
    if (gpu.comm.device().index == 0) {
      // Those of the ranks, of their two streams, and of their contexts.
      Eventually([&] { return NumThreads() <= before + 4 * kRanks; }, "threads");
    }
  });
}

// The memory and the streams of a process are used in the next round, with other ranks in another world.
TEST(NcclRetireTest, TheNextRoundUsesTheSameContext) {
  for (int round = 7; round < 12; ++round) {
    SCOPED_TRACE(round);
    const int size = 1 + round % kRanks;
    Barrier done(size);
    WithGpuRanks({.size = size, .round = round}, [&](GpuRank& gpu) {
      const Tensor tensor = gpu.Put<float>({1, 2});
      EXPECT_EQ(gpu.comm.AllReduce(tensor, ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
      EXPECT_EQ(gpu.Get(tensor), (std::vector<float>{1.0f * size, 2.0f * size}));
      done.Wait();
      gpu.fabric->Retire(AbortedError("over"));
    });
  }
}

TEST(NcclRetireTest, ACallerThatIsBlockedReturns) {
  const std::vector<std::pair<std::string, std::function<Status(GpuRank&, const Tensor&)> > > calls = {
      {"Wait",
       [](GpuRank& gpu, const Tensor& t) { return gpu.comm.AllReduce(t, ReduceOp::kSum, gpu.on()).Wait(); }},
      {"WaitOn, and then Wait",
       [](GpuRank& gpu, const Tensor& t) {
         Work work = gpu.comm.AllReduce(t, ReduceOp::kSum, gpu.on());
         (void)work.WaitOn(gpu.stream());
         return work.Wait();
       }},
      {"Split", [](GpuRank& gpu, const Tensor&) { return gpu.comm.Split(0).status(); }},
      {"Allocate",
       [](GpuRank& gpu, const Tensor&) {
         return gpu.comm.Allocate(DType::kFloat32, 10, gpu.comm.device()).status();
       }},
  };
  for (const auto& entry : calls) {
    SCOPED_TRACE(entry.first);
    Barrier connected;
    WithGpuRanks({kRanks}, [&](GpuRank& gpu) {
      const Tensor tensor = gpu.Put<float>({1});
      connected.Wait();
      // Only ranks 0 and 1 call it.
      const int rank = gpu.comm.rank();
      if (rank == kRanks - 1) {
        EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kAborted);
        gpu.fabric->Retire(OverFor(rank));
        return;
      }
      Event returned;
      Status status;
      std::thread caller([&] {
        status = entry.second(gpu, tensor);
        returned.Set();
      });
      if (rank == 0) poll(nullptr, 0, 20);  // usually blocked by then; all orders are allowed
      gpu.fabric->Retire(OverFor(rank));
      EXPECT_TRUE(returned.WaitUntil(Clock::now() + seconds(60)));
      caller.join();
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    });
  }
}

TEST(NcclRetireTest, OtherThreadsMayUseAndDestroyGroupsMeanwhile) {
  for (int i = 0; i < 15; ++i) {
    SCOPED_TRACE(i);
    std::atomic<int> num_done{0};
    WithGpuRanks({kRanks}, [&](GpuRank& gpu) {
      std::vector<Communicator> kept;
      const int rank = gpu.comm.rank();
      std::thread caller([&] {
        Status status;
        for (int k = 0; status.ok(); ++k, ++num_done) {
          StatusOr<Communicator> part = gpu.comm.Split(0);
          status = part.status();
          if (!part.ok()) break;
          StatusOr<Buffer> buffer = part->Allocate(DType::kFloat32, 10, gpu.comm.device());
          status = buffer.status();
          if (!buffer.ok()) break;
          status = part->AllReduce(buffer->tensor(), ReduceOp::kSum, gpu.on()).Wait();
          if (k % 2 == 0) kept.push_back(*std::move(part));
        }
        if (i % 3 == 0) gpu.comm = Communicator();
      });
      Eventually([&] { return num_done >= i % 4; }, "operations");
      gpu.fabric->Retire(OverFor(rank));
      caller.join();
      for (Communicator& part : kept) ExpectHusk(gpu, part, kRanks);
    });
    const StandInCounts left = CountsOfStandIn();
    EXPECT_EQ(left.contexts + left.communicators + left.streams + left.events + left.allocations, 0);
  }
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
