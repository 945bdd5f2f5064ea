// Ranks that make different calls on GPUs, on the stand-in for CUDA and NCCL: such operations never end there. Without a toolkit
// there is nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclCallsTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The timeout of the communicators. An error that comes earlier is not that of a deadline.
constexpr Duration kTimeout = seconds(60), kSoon = seconds(20);

Tensor Floats(GpuRank& gpu, int count) { return gpu.Put(std::vector<float>(count, 1)); }

// Makes calls, of which the last one of the odd rank differs.
struct Difference {
  std::string name;
  std::function<Work(GpuRank&)> call, odd_call;
  std::string text, odd_text;  // how errors show the two
};

std::vector<Difference> Differences() {
  const auto sum = [](int count) {
    return [count](GpuRank& gpu) { return gpu.comm.AllReduce(Floats(gpu, count), ReduceOp::kSum, gpu.on()); };
  };
  const auto broadcast = [](int root) {
    return [root](GpuRank& gpu) { return gpu.comm.Broadcast(Floats(gpu, 4), root, gpu.on()); };
  };
  const std::string text = "all-reduce (sum) of 4 float32";
  return {
      {"Count", sum(4), sum(5), text, "all-reduce (sum) of 5 float32"},
      {"Dtype", sum(4),
       [](GpuRank& gpu) {
         return gpu.comm.AllReduce(gpu.Put<int32_t>({1, 1, 1, 1}), ReduceOp::kSum, gpu.on());
       },
       text, "all-reduce (sum) of 4 int32"},
      {"Reduction", sum(4),
       [](GpuRank& gpu) { return gpu.comm.AllReduce(Floats(gpu, 4), ReduceOp::kMax, gpu.on()); }, text,
       "all-reduce (max) of 4 float32"},
      {"Operation", sum(4),
       [](GpuRank& gpu) {
         return gpu.comm.AllGather(Floats(gpu, 4), Floats(gpu, 4 * gpu.comm.size()), gpu.on());
       },
       text, "all-gather of 4 float32"},
      {"Root", broadcast(0), broadcast(1), "broadcast of 4 float32 from rank 0",
       "broadcast of 4 float32 from rank 1"},
  };
}

std::string NameOfWorld(const GpuWorld& world) { return StrCat(world.size, "on", world.num_nodes); }

class NcclCallsTest : public testing::TestWithParam<GpuWorld> {
 protected:
  static GpuWorld World() {
    GpuWorld world = GetParam();
    world.timeout = kTimeout;
    return world;
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, NcclCallsTest,
                         testing::Values(GpuWorld{2}, GpuWorld{3}, GpuWorld{8}, GpuWorld{2, 2},
                                         GpuWorld{6, 3}),
                         [](const auto& info) { return NameOfWorld(info.param); });

void ExpectDifference(const Status& status, TimePoint start, int odd, int number, const std::string& text,
                      const std::string& odd_text) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("the calls of round 7 differ: GPU operation "), HasSubstr(StrCat(" is ", text)),
                    HasSubstr(StrCat("GPU operation ", number, " of rank ", odd, " is ", odd_text))));
  EXPECT_LT(Clock::now() - start, kSoon);
}

TEST_P(NcclCallsTest, TheErrorOfCallsThatDifferNamesThem) {
  for (const Difference& difference : Differences()) {
    for (const int odd : {0, GetParam().size - 1}) {
      SCOPED_TRACE(StrCat(difference.name, " of rank ", odd));
      WithGpuRanks(World(), [&](GpuRank& gpu) {
        EXPECT_EQ(gpu.comm.AllReduce(Floats(gpu, 1), ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
        const TimePoint start = Clock::now();
        Work work = gpu.comm.rank() == odd ? difference.odd_call(gpu) : difference.call(gpu);
        ExpectDifference(work.Wait(), start, odd, 1, difference.text, difference.odd_text);
      });
    }
  }
}

// Operations are queued; the host waits for the last one only.
TEST_P(NcclCallsTest, ARankThatSkipsACallIsNamed) {
  const int odd = GetParam().size - 1;
  WithGpuRanks(World(), [&](GpuRank& gpu) {
    const TimePoint start = Clock::now();
    std::vector<Work> works;
    for (int count = 1; count <= 20; ++count) {
      if (count == 3 && gpu.comm.rank() == odd) continue;
      works.push_back(gpu.comm.AllReduce(Floats(gpu, count), ReduceOp::kSum, gpu.on()));
    }
    ExpectDifference(works.back().Wait(), start, odd, 2, "all-reduce (sum) of 3 float32",
                     "all-reduce (sum) of 4 float32");
    EXPECT_EQ(works[0].Wait(), OkStatus());
    EXPECT_EQ(works[1].Wait(), OkStatus());
  });
}

// The others send notes before the odd rank makes its call.
class LateCallTest : public testing::TestWithParam<std::tuple<GpuWorld, bool> > {};

INSTANTIATE_TEST_SUITE_P(Worlds, LateCallTest,
                         testing::Combine(testing::Values(GpuWorld{2}, GpuWorld{3}, GpuWorld{2, 2}),
                                          testing::Bool()),
                         [](const auto& info) {
                           return StrCat(NameOfWorld(std::get<0>(info.param)),
                                         std::get<1>(info.param) ? "Different" : "Equal");
                         });

TEST_P(LateCallTest, IsAnErrorOnlyIfItDiffers) {
  const auto [world, differs] = GetParam();
  const int last = world.size - 1;
  std::atomic<int> num_waiting{0};
  WithGpuRanks({.size = world.size, .num_nodes = world.num_nodes, .timeout = kTimeout}, [&](GpuRank& gpu) {
    const TimePoint start = Clock::now();
    if (gpu.comm.rank() == last) {
      while (num_waiting < last) std::this_thread::yield();
      // The fault: this rank is late, while the others look at their operations.
      std::this_thread::sleep_until(Clock::now() + milliseconds(200));
    }
    Work work =
        gpu.comm.AllReduce(Floats(gpu, differs && gpu.comm.rank() == last ? 5 : 4), ReduceOp::kSum, gpu.on());
    ++num_waiting;
    const Status status = work.Wait();
    if (differs) {
      ExpectDifference(status, start, last, 0, "all-reduce (sum) of 4 float32",
                       "all-reduce (sum) of 5 float32");
    } else {
      EXPECT_EQ(status, OkStatus());
      EXPECT_EQ(gpu.comm.AllReduce(Floats(gpu, 4), ReduceOp::kSum, gpu.on()).Wait(), OkStatus());
    }
  });
}

// The calls are compared when the deadline passes, if they have not been before.
TEST(NcclCallsDeadlineTest, CallsThatDifferAreABetterErrorThanTheDeadline) {
  WithGpuRanks({.size = 3, .timeout = kTimeout}, [](GpuRank& gpu) {
    Work work = gpu.comm.AllReduce(Floats(gpu, 4 + gpu.comm.rank() / 2), ReduceOp::kSum, gpu.on());
    // In flight: an operation that NCCL has not begun ends at its deadline without the comparison of the other ranks.
    (void)work.WaitOn(gpu.stream());
    (void)gpu.comm.Barrier().Wait();  // all have made the call
    const Status status = work.Wait(Clock::now());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the calls of round 7 differ: GPU operation 0 of rank "));
  });
}

TEST(NcclCallsPartTest, ThePartsOfASplitHaveCallsOfTheirOwn) {
  WithGpuRanks({.size = 4, .timeout = kTimeout}, [](GpuRank& gpu) {
    StatusOr<Communicator> part = gpu.comm.Split(gpu.comm.rank() % 2);
    ASSERT_TRUE(part.ok()) << part.status();
    // The first call of the two parts differs; so does, in the second part, the second one.
    EXPECT_EQ(part->AllReduce(Floats(gpu, 1 + gpu.comm.rank() % 2), ReduceOp::kSum, gpu.on()).Wait(),
              OkStatus());
    const TimePoint start = Clock::now();
    Work work = part->AllReduce(Floats(gpu, gpu.comm.rank() == 3 ? 9 : 8), ReduceOp::kSum, gpu.on());
    const Status status = work.Wait();  // in the first part: OK, or the error of the second one
    if (gpu.comm.rank() % 2 == 0) return;
    ExpectDifference(status, start, 3, 1, "all-reduce (sum) of 8 float32", "all-reduce (sum) of 9 float32");
  });
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
