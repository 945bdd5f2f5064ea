// Tests the data-parallel step on GPUs of the stand-in, whose streams have random delays: work that does not follow what it
// needs computes other values. All sums are exact, so the bits are those of the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/event.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"
#include "worker_sdk/comm/nccl/testing/stand_in_functions.h"
#include "worker_sdk/comm/testing/rank_threads.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

#ifndef DDPRUN_HAVE_CUDA

TEST(DataParallelGpuTest, WithoutAToolkitThereAreNoGpus) {
  std::vector<float> values(16);
  WithRanks(1, [&](Communicator& comm) {
    const Tensor on_gpu{values.data(), 1, DType::kFloat32, {DeviceType::kCuda, 0}};
    EXPECT_EQ(DataParallel::Create(comm, {{"p", {1}, on_gpu, {}, true}}).status().message(),
              "creating DataParallel: rank 0: parameter p: its value is on GPU 0 instead of on the host");
  });
}

#else

constexpr int kSteps = 4;
constexpr int64_t kSizes[] = {1000, 3, 0, 500, 64};

std::vector<float> GradientOf(int rank, int step, size_t i) {
  std::vector<float> values(kSizes[i]);
  for (size_t e = 0; e < values.size(); ++e)
    values[e] = static_cast<float>(static_cast<int>(rank * 31 + step * 7 + i * 3 + e) % 9 - 4);
  return values;
}

struct Case {
  std::string name;
  DataParallelOptions options = {};
  double clip_norm = 0;
  bool own_gradients = false;  // gradients have memory of the program
  bool leaves_out = false;     // rank 0 leaves out parameter 1, and all ranks leave out parameter 3
  bool zeroes = false;  // ZeroGradients, and then backward, which writes parameter 4 in every other step only
  // Of backward. kBoth: two, of which the second follows Finish by itself. kOther: the one that Finish does not use; only
  // ZeroGradients makes it follow Finish.
  enum Streams { kSame, kBoth, kOther } streams = kSame;
};

bool LeavesOut(const Case& c, int rank, size_t i) {
  if (!c.leaves_out) return false;
  return i == 3 || (rank == 0 && (i == 1 || c.streams == Case::kOther));
}

std::vector<Case> Cases() {
  constexpr int64_t kSmall = 1024;
  return {
      {"Plain"},
      {"Sum", {.op = ReduceOp::kSum}},
      {"SmallBuckets", {.bucket_bytes = kSmall, .first_bucket_bytes = kSmall}},
      {"WithoutOverlap", {.bucket_bytes = kSmall, .overlap = false}},
      {.name = "OwnGradients", .options = {.bucket_bytes = kSmall}, .own_gradients = true},
      {"Float16", {.bucket_bytes = kSmall, .compression = Compression::kFloat16}},
      {"BFloat16", {.compression = Compression::kBFloat16, .error_feedback = true}},
      {.name = "Clipped", .options = {.bucket_bytes = kSmall}, .clip_norm = 2},
      {.name = "NotClipped", .clip_norm = std::numeric_limits<double>::infinity()},
      {.name = "Unused", .options = {.bucket_bytes = kSmall, .unused_parameters = true}, .leaves_out = true},
      {.name = "UnusedCompressed",
       .options = {.compression = Compression::kFloat16, .unused_parameters = true},
       .leaves_out = true},
      {"Atomic", {.bucket_bytes = kSmall, .atomic_steps = true}},
      {.name = "AtomicClipped",
       .options = {.bucket_bytes = kSmall, .unused_parameters = true, .atomic_steps = true},
       .clip_norm = 2,
       .leaves_out = true},
      {.name = "Zeroed", .options = {.bucket_bytes = kSmall}, .zeroes = true},
      {.name = "SeveralStreams",
       .options = {.bucket_bytes = kSmall},
       .own_gradients = true,
       .streams = Case::kBoth},
      {.name = "ZeroedInAnotherStream",
       .options = {.bucket_bytes = kSmall, .unused_parameters = true},
       .leaves_out = true,
       .zeroes = true,
       .streams = Case::kOther},
  };
}

struct Result {
  std::vector<std::vector<float> > values;
  std::vector<double> norms;
  std::vector<std::vector<size_t> > unused;
  bool operator==(const Result&) const = default;
};

std::vector<float> InitialValue(size_t i) {
  return std::vector<float>(kSizes[i], 0.5f + static_cast<float>(i));
}

Result OnHost(const Case& c, int world) {
  Result result;
  WithRanks(world, [&](Communicator& comm) {
    std::vector<std::vector<float> > values, gradients;
    for (size_t i = 0; i < std::size(kSizes); ++i) values.push_back(InitialValue(i));
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < std::size(kSizes); ++i)
      parameters.push_back({"p" + std::to_string(i), {kSizes[i]}, View(values[i]), {}, true});
    const auto optimizer = *MakeAdamW(parameters);
    DataParallel dp = *DataParallel::Create(comm, parameters, c.options);
    Result mine;
    for (int step = 1; step <= kSteps; ++step) {
      dp.Begin();
      if (c.zeroes) dp.ZeroGradients();
      for (size_t i = std::size(kSizes); i-- > 0;) {
        if (LeavesOut(c, comm.rank(), i)) continue;
        const std::vector<float> gradient = GradientOf(comm.rank(), step, i);
        if (!c.zeroes || i != 4 || step % 2 == 1)
          std::copy(gradient.begin(), gradient.end(), static_cast<float*>(dp.gradient(i).data));
        dp.Ready(i);
      }
      ASSERT_EQ(dp.Finish({.optimizer = optimizer.get(), .step = {.step = step}, .clip_norm = c.clip_norm}),
                OkStatus());
      mine.norms.push_back(dp.norm());
      mine.unused.push_back(dp.unused());
    }
    mine.values = values;
    if (comm.rank() == 0) result = mine;
  });
  return result;
}

// The host waits for the GPU only at the end, unless the options make Finish wait.
void ExpectOnGpus(const Case& c, int world, const Result& expected) {
  WithGpuRanks({world}, [&](GpuRank& gpu) {
    const int rank = gpu.comm.rank();
    const Stream streams[] = {gpu.stream(), gpu.AnotherStream()};
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      const Tensor value = gpu.Put(InitialValue(i));
      const Tensor gradient = c.own_gradients ? gpu.Put(std::vector<float>(kSizes[i])) : Tensor{};
      parameters.push_back({"p" + std::to_string(i), {kSizes[i]}, value, gradient, true});
    }
    gpu.Synchronize();
    const auto optimizer = *MakeAdamW(parameters);
    StatusOr<DataParallel> dp = DataParallel::Create(gpu.comm, parameters, c.options);
    ASSERT_TRUE(dp.ok()) << dp.status();
    Result result;
    for (int step = 1; step <= kSteps; ++step) {
      dp->Begin();
      if (c.zeroes) dp->ZeroGradients(streams[c.streams == Case::kOther]);
      for (size_t i = std::size(kSizes); i-- > 0;) {
        if (LeavesOut(c, rank, i)) continue;
        const Stream& stream = streams[c.streams == Case::kOther || (c.streams == Case::kBoth && i % 2 == 1)];
        if (!c.zeroes || i != 4 || step % 2 == 1)
          gpu.Write(dp->gradient(i), GradientOf(rank, step, i), stream);
        dp->Ready(i, stream);
      }
      ASSERT_EQ(dp->Finish({.optimizer = optimizer.get(),
                            .step = {.step = step},
                            .clip_norm = c.clip_norm,
                            .stream = gpu.stream()}),
                OkStatus());
      // Backward in the other stream writes memory that Finish reads.
      if (c.streams == Case::kBoth) gpu.Order(streams[0], streams[1]);
      result.norms.push_back(dp->norm());
      result.unused.push_back(dp->unused());
    }
    ASSERT_EQ(dp->Wait(), OkStatus());
    for (const Parameter& p : parameters) result.values.push_back(gpu.Get(p.value));
    EXPECT_EQ(result.values, expected.values);
    EXPECT_EQ(result.norms, expected.norms);
    EXPECT_EQ(result.unused, expected.unused);
  });
}

// A case, and the size of the world.
class DataParallelGpuTest : public testing::TestWithParam<std::tuple<Case, int> > {};

INSTANTIATE_TEST_SUITE_P(Cases, DataParallelGpuTest,
                         testing::Combine(testing::ValuesIn(Cases()), testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(DataParallelGpuTest, ComputesTheBitsOfTheHost) {
  const auto& [c, world] = GetParam();
  ExpectOnGpus(c, world, OnHost(c, world));
}

// One parameter with one element, on the GPU.
std::vector<Parameter> OneParameter(GpuRank& gpu) { return {{"p", {1}, gpu.Put<float>({1}), {}, true}}; }

TEST(DataParallelGpuFaultTest, CreateRefusesWhatAGpuDoesNotHave) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    const std::vector<Parameter> wide = {{"p", {1}, gpu.Put<double>({1}), {}, true}};
    EXPECT_EQ(
        DataParallel::Create(gpu.comm, wide, {.compression = Compression::kBFloat16}).status().message(),
        "creating DataParallel: rank 0: parameter p is float64, which cannot be compressed on a GPU");
    std::vector<float> on_host = {1};
    std::vector<Parameter> mixed = OneParameter(gpu);
    mixed.push_back({"q", {1}, View(on_host), {}, true});
    EXPECT_EQ(DataParallel::Create(gpu.comm, mixed).status().message(),
              "creating DataParallel: rank 0: parameter p is on GPU 0, parameter q on the host");
    EXPECT_EQ(gpu.comm.Barrier().Wait(), OkStatus());
  });
}

// `finish` is given a step in which one gradient is written, and returns the error of Finish.
void ExpectError(const std::function<Status(GpuRank&, DataParallel&)>& finish, const std::string& message) {
  WithGpuRanks({2}, [&](GpuRank& gpu) {
    DataParallel dp = *DataParallel::Create(gpu.comm, OneParameter(gpu));
    gpu.Synchronize();
    dp.Begin();
    const Status status = finish(gpu, dp);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_FALSE(gpu.comm.status().ok());
  });
}

TEST(DataParallelGpuFaultTest, StreamsThatAreMissingAreErrorsOfFinish) {
  ExpectError(
      [](GpuRank& gpu, DataParallel& dp) {
        dp.Ready(0);
        return dp.Finish({.stream = gpu.stream()});
      },
      "Ready: the memory is on GPU ");
  ExpectError(
      [](GpuRank& gpu, DataParallel& dp) {
        dp.Ready(0, {gpu.comm.device(), nullptr});
        return dp.Finish({.stream = gpu.stream()});
      },
      "the default stream is not allowed");
  ExpectError(
      [](GpuRank& gpu, DataParallel& dp) {
        dp.Ready(0, gpu.stream());
        return dp.Finish();
      },
      "FinishOptions::stream: the memory is on GPU ");
  ExpectError(
      [](GpuRank& gpu, DataParallel& dp) {
        dp.ZeroGradients();
        dp.Ready(0, gpu.stream());
        return dp.Finish({.stream = gpu.stream()});
      },
      "ZeroGradients: the memory is on GPU ");
}

// The bucket of the first gradient is being reduced, and uses memory that the test frees after the error.
TEST(DataParallelGpuFaultTest, AnErrorOfFinishEndsWhatIsInFlight) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    std::vector<Parameter> parameters = OneParameter(gpu);
    parameters.push_back({"q", {1000}, gpu.Put(std::vector<float>(1000)), {}, true});
    DataParallel dp = *DataParallel::Create(gpu.comm, parameters, {.bucket_bytes = 1});
    if (gpu.comm.rank() == 1) {
      EXPECT_EQ(gpu.comm.Barrier().Wait().code(), StatusCode::kAborted);
      return;
    }
    dp.Begin();
    dp.Ready(1, gpu.stream());
    EXPECT_THAT(dp.Finish({.stream = gpu.stream()}).message(),
                HasSubstr("Ready() was not called for parameter p"));
  });
}

TEST(DataParallelGpuFaultTest, AStreamForTheHostIsAnError) {
  WithRanks(1, [](Communicator& comm) {
    std::vector<float> value = {1};
    DataParallel dp = *DataParallel::Create(comm, {{"p", {1}, View(value), {}, true}});
    dp.Begin();
    dp.Ready(0, {{DeviceType::kCuda, 0}, &value});
    EXPECT_EQ(dp.Finish().message(),
              "reducing gradients: Ready: the memory is on the host, but the stream is on GPU 0");
  });
}

TEST(DataParallelGpuFaultTest, ClippingNeedsFloat32) {
  WithGpuRanks({1}, [](GpuRank& gpu) {
    DataParallel dp = *DataParallel::Create(gpu.comm, {{"p", {1}, gpu.Put<double>({1}), {}, true}});
    dp.Begin();
    dp.Ready(0, gpu.stream());
    EXPECT_EQ(dp.Finish({.clip_norm = 1, .stream = gpu.stream()}).message(),
              "reducing gradients: clip_norm on a GPU needs float32: parameter p is float64");
  });
}

// NCCL fails when all ranks have one of two buckets: no rank updates a parameter.
TEST(DataParallelGpuFaultTest, AnErrorOfNcclWithinAStepLeavesAllParametersAsTheyWere) {
  if (!OnStandIn()) GTEST_SKIP() << "lets NCCL fail, as only the stand-in does";
  constexpr int kRanks = 3;
  std::atomic<int> num_ready{0};
  Event failed;
  WithGpuRanks({kRanks}, [&](GpuRank& gpu) {
    std::vector<Parameter> parameters = OneParameter(gpu);
    parameters.push_back({"q", {2}, gpu.Put<float>({1, 1}), {}, true});
    const auto optimizer = *MakeSgd(parameters, {.learning_rate = 0.5});
    DataParallel dp = *DataParallel::Create(gpu.comm, parameters, {.bucket_bytes = 1, .atomic_steps = true});
    gpu.Synchronize();
    const auto step = [&](int number, const std::function<void()>& between) {
      dp.Begin();
      gpu.Write(dp.gradient(1), std::vector<float>{2, 4}, gpu.stream());
      dp.Ready(1, gpu.stream());
      between();
      gpu.Write(dp.gradient(0), std::vector<float>{1}, gpu.stream());
      dp.Ready(0, gpu.stream());
      return dp.Finish({.optimizer = optimizer.get(), .step = {.step = number}, .stream = gpu.stream()});
    };
    ASSERT_EQ(step(1, [] {}), OkStatus());
    ASSERT_EQ(dp.Wait(), OkStatus());
    const Status status = step(2, [&] {
      if (++num_ready == kRanks) {
        FindInStandIn<decltype(StandInFailCommunicators)>("libnccl.so.2", "StandInFailCommunicators")(3);
        failed.Set();
      }
      failed.Wait();
    });
    EXPECT_THAT(status.message(), HasSubstr(" of round 7 gave up: NCCL: ncclInternalError"));
    EXPECT_EQ(gpu.Get(parameters[0].value), std::vector<float>{0.5});
    EXPECT_EQ(gpu.Get(parameters[1].value), (std::vector<float>{0, -1}));
  });
}

// Finish does not wait, so that the error comes in it, in Wait, or in the next Finish.
TEST(DataParallelGpuFaultTest, ARankThatGivesUpIsNamed) {
  WithGpuRanks({3}, [](GpuRank& gpu) {
    std::optional<DataParallel> dp = *DataParallel::Create(gpu.comm, OneParameter(gpu));
    gpu.Synchronize();
    Status status;
    for (int step = 1; step <= 3 && status.ok(); ++step) {
      dp->Begin();
      if (gpu.comm.rank() == 1 && step == 2) {
        dp.reset();  // between Begin and Finish
        return;
      }
      dp->Ready(0, gpu.stream());
      status = dp->Finish({.stream = gpu.stream()});
      if (status.ok()) status = dp->Wait();
    }
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(status.message(),
                HasSubstr("rank 1 of round 7 gave up: a data-parallel step was not finished"));
  });
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
