#include "examples/train/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ddprun/status.h"

namespace ddprun::train {
namespace {

using testing::HasSubstr;

RankGpu With(const std::string& flag, const std::string& uuid) { return {.flag = flag, .uuid = uuid}; }
RankGpu Without(const std::string& flag) { return {.flag = flag, .missing = "there is no NVIDIA driver"}; }

TEST(DeviceChoiceTest, AutoIsTheGpuIfEachRankHasOne) {
  const DeviceChoice choice = ChooseDevice(std::vector{With("auto", "a"), With("auto", "b")}).value();
  EXPECT_EQ(choice.type, DeviceType::kCuda);
  EXPECT_EQ(choice.reason, "");
}

TEST(DeviceChoiceTest, AutoIsTheHostOtherwiseAndSaysWhy) {
  const DeviceChoice missing =
      ChooseDevice(std::vector{With("auto", "a"), With("auto", "b"), Without("auto")}).value();
  EXPECT_EQ(missing.type, DeviceType::kHost);
  EXPECT_EQ(missing.reason, "rank 2 has no GPU: there is no NVIDIA driver");
  const DeviceChoice shared =
      ChooseDevice(std::vector{With("auto", "a"), With("auto", "b"), With("auto", "b")}).value();
  EXPECT_EQ(shared.type, DeviceType::kHost);
  EXPECT_EQ(shared.reason,
            "ranks 1 and 2 have the same GPU, b, which NCCL refuses: start one worker per GPU "
            "(--nproc-per-node=gpu)");
}

TEST(DeviceChoiceTest, CudaNeedsAGpuOnEachRank) {
  EXPECT_EQ(ChooseDevice(std::vector{With("cuda", "a"), With("cuda", "b")}).value().type, DeviceType::kCuda);
  EXPECT_EQ(ChooseDevice(std::vector{With("cuda", "a"), Without("cuda"), Without("cuda")}).status(),
            FailedPreconditionError("--device=cuda: rank 1 has no GPU: there is no NVIDIA driver"));
  // NCCL decides about ranks that share a GPU: NCCL_MULTI_RANK_GPU_ENABLE.
  EXPECT_EQ(ChooseDevice(std::vector{With("cuda", "a"), With("cuda", "a")}).value().type, DeviceType::kCuda);
}

TEST(DeviceChoiceTest, CpuNeedsNoReason) {
  const DeviceChoice choice = ChooseDevice(std::vector{Without("cpu"), With("cpu", "a")}).value();
  EXPECT_EQ(choice.type, DeviceType::kHost);
  EXPECT_EQ(choice.reason, "");
}

TEST(DeviceChoiceTest, FlagsThatDifferAreAnError) {
  EXPECT_EQ(ChooseDevice(std::vector{With("auto", "a"), With("auto", "b"), With("cpu", "c")}).status(),
            InvalidArgumentError("rank 2 has --device=cpu, but rank 0 has --device=auto: start all with the "
                                 "same flags"));
}

TEST(DeviceChoiceTest, CpuOpensNothing) {
  const RankGpu gpu = FindGpu("cpu", 0);
  EXPECT_EQ(gpu.flag, "cpu");
  EXPECT_EQ(gpu.missing, "--device=cpu");
}

}  // namespace
}  // namespace ddprun::train
