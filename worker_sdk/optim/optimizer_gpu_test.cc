// Tests optimizers, and broadcasts of parameters and of their state, on GPUs of the stand-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/parameters.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr Device kGpu{DeviceType::kCuda, 0};

TEST(OptimizerGpuTest, ParametersAreOnOneDevice) {
  std::vector<float> value(1);
  const Tensor on_gpu{value.data() + 16, 1, DType::kFloat32, kGpu};  // never accessed
  EXPECT_EQ(MakeAdamW({{"a", {1}, View(value), {}, true}, {"b", {1}, on_gpu, {}, true}}).status().message(),
            "AdamW: parameter a is on the host, parameter b on GPU 0");
  EXPECT_EQ(MakeSgd({{"a", {1}, on_gpu, View(value), true}}).status().message(),
            "SGD: parameter a: its value is on GPU 0, its gradient on the host");
#ifndef DDPRUN_HAVE_CUDA
  EXPECT_EQ(MakeSgd({{"a", {1}, on_gpu, {}, true}}).status().code(), StatusCode::kFailedPrecondition);
#endif
}

#ifdef DDPRUN_HAVE_CUDA

using Make = std::function<StatusOr<std::unique_ptr<Optimizer>>(std::vector<Parameter>)>;

const std::pair<const char*, Make> kOptimizers[] = {
    {"adamw", [](auto p) { return MakeAdamW(std::move(p), {.learning_rate = 0.01, .weight_decay = 0.1}); }},
    {"sgd", [](auto p) { return MakeSgd(std::move(p), {.learning_rate = 0.01, .weight_decay = 0.1}); }},
    {"momentum", [](auto p) { return MakeSgd(std::move(p), {.learning_rate = 0.01, .momentum = 0.9}); }},
};

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(rng.Normal());
  return values;
}

constexpr int64_t kSizes[] = {1000, 0, 7};

// Three steps on the host, of parameters with random values.
std::vector<std::vector<float>> OnHost(const Make& make) {
  std::vector<std::vector<float>> values, gradients;
  std::vector<Parameter> parameters;
  for (const int64_t size : kSizes) values.push_back(RandomFloats(size, size));
  for (size_t i = 0; i < std::size(kSizes); ++i)
    parameters.push_back({"p" + std::to_string(i), {kSizes[i]}, View(values[i]), {}, i != 2});
  const auto optimizer = *make(parameters);
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      const std::vector<float> gradient = RandomFloats(kSizes[i], 100 * step + i);
      optimizer->Update(i, View(gradient), {.step = step, .rate_factor = 0.5});
    }
  }
  return values;
}

TEST(OptimizerGpuTest, ComputesTheBitsOfTheHost) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const auto expected = OnHost(make);
    WithGpuRanks({1}, [&, &make = make](GpuRank& gpu) {
      const Stream streams[] = {gpu.stream(), gpu.AnotherStream()};
      std::vector<Parameter> parameters;
      for (size_t i = 0; i < std::size(kSizes); ++i) {
        parameters.push_back(
            {"p" + std::to_string(i), {kSizes[i]}, gpu.Put(RandomFloats(kSizes[i], kSizes[i])), {}, i != 2});
      }
      const auto optimizer = *make(parameters);
      std::vector<Tensor> gradients;
      for (int step = 1; step <= 3; ++step) {
        for (size_t i = 0; i < std::size(kSizes); ++i)
          gradients.push_back(gpu.Put(RandomFloats(kSizes[i], 100 * step + i)));
      }
      gpu.Synchronize();
      // Updates in another stream follow those before.
      for (int step = 1; step <= 3; ++step) {
        for (size_t i = 0; i < std::size(kSizes); ++i) {
          optimizer->Update(i, gradients[(step - 1) * std::size(kSizes) + i],
                            {.step = step, .rate_factor = 0.5, .stream = streams[step % 2]});
        }
      }
      EXPECT_EQ(optimizer->status(), OkStatus());
      gpu.Synchronize();
      for (size_t i = 0; i < std::size(kSizes); ++i) EXPECT_EQ(gpu.Get(parameters[i].value), expected[i]);
    });
  }
}

class OptimizerGpuWorldTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Worlds, OptimizerGpuWorldTest, testing::Values(1, 2, 3));

TEST_P(OptimizerGpuWorldTest, BroadcastsParametersAndState) {
  const int world = GetParam();
  WithGpuRanks({world}, [&](GpuRank& gpu) {
    const int rank = gpu.comm.rank(), root = world - 1;
    // The second is sent by itself, the others in messages of several.
    const std::vector<int64_t> sizes = {5, 300'000, 200'000, 200'000, 200'000, 200'000, 200'000, 200'000, 0};
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < sizes.size(); ++i)
      parameters.push_back(
          {"p" + std::to_string(i), {sizes[i]}, gpu.Put(RandomFloats(sizes[i], 1000 * rank + i)), {}, true});
    std::vector<float> on_host = {static_cast<float>(rank)};
    parameters.push_back({"on_host", {1}, View(on_host), {}, true});
    gpu.Synchronize();
    ASSERT_EQ(BroadcastParameters(gpu.comm, parameters, root), OkStatus());
    for (size_t i = 0; i < sizes.size(); ++i)
      EXPECT_EQ(gpu.Get(parameters[i].value), RandomFloats(sizes[i], 1000 * root + i)) << i;
    EXPECT_EQ(on_host[0], root);

    const auto optimizer = *MakeAdamW({parameters[0]});
    optimizer->Update(0, gpu.Put(RandomFloats(5, rank)), {.stream = gpu.stream()});
    gpu.Synchronize();
    ASSERT_EQ(BroadcastOptimizer(gpu.comm, *optimizer, root), OkStatus());
    std::vector<float> mean = RandomFloats(5, root);
    for (float& m : mean) m *= 1 - 0.9f;
    EXPECT_EQ(gpu.Get(optimizer->state()[0].values), mean);
  });
}

TEST(OptimizerGpuTest, RanksThatDifferInTheirDevicesAreNamed) {
  WithGpuRanks({2}, [](GpuRank& gpu) {
    std::vector<float> on_host = {1};
    const Tensor value = gpu.comm.rank() == 0 ? View(on_host) : gpu.Put(on_host);
    EXPECT_EQ(
        BroadcastParameters(gpu.comm, {{"p", {1}, value, {}, true}}, 0).message(),
        "broadcasting parameters: the ranks differ: the device of parameter p is the host on rank 0 and is "
        "a GPU on rank 1");
    const Tensor elsewhere{value.data, 1, DType::kFloat32, {DeviceType::kCuda, 5}};
    EXPECT_THAT(CompareParameters(gpu.comm, {{"p", {1}, elsewhere, {}, true}}).message(),
                HasSubstr("rank 0: parameter p: its value is on GPU 5 instead of on GPU 0"));
    EXPECT_EQ(gpu.comm.Barrier().Wait(), OkStatus());
  });
}

TEST(OptimizerGpuDeathTest, AGradientOrAStreamElsewhereIsAMistake) {
  WithGpuRanks({1}, [](GpuRank& gpu) {
    const auto optimizer = *MakeSgd({{"p", {1}, gpu.Put<float>({1}), {}, true}});
    std::vector<float> on_host = {1};
    const Tensor gradient = gpu.Put(on_host);
    EXPECT_DEATH(optimizer->Update(0, View(on_host), {.stream = gpu.stream()}),
                 "parameter p is on GPU 0, its gradient on the host");
    EXPECT_DEATH(optimizer->Update(0, gradient, {}),
                 "OptimizerStep::stream: the memory is on GPU 0, but the stream is on the host");
  });
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun
