#include "launcher/config/gpus.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/testing/loaded_nvml.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Names = std::vector<std::string>;

TEST(VisibleGpusTest, FollowsTheCudaRuntime) {
  const Names kUuids = {"GPU-a1", "GPU-a2", "GPU-b1", "GPU-c1"};
  EXPECT_THAT(VisibleGpus(std::nullopt, kUuids), ElementsAre("0", "1", "2", "3"));
  const struct {
    const char* visible;
    Names want;
  } kCases[] = {
      {"", {}},
      {"0", {"0"}},
      {"0,1", {"0", "1"}},
      {"3, 2", {"3", "2"}},
      {"-1", {}},
      {"0,-1,1", {"0"}},
      {"0,4,1", {"0"}},
      {"1gpu,2.5", {"1", "2"}},
      {"99999999999", {}},
      {"x", {}},
      {"NoDevFiles", {}},
      {",1", {}},
      {"2,2", {}},
      {"1,2,01", {}},
      {"GPU-b1,GPU-a2", {"GPU-b1", "GPU-a2"}},
      {"GPU-b, GPU-c", {"GPU-b", "GPU-c"}},
      {"GPU-b,GPU-a", {"GPU-b"}},  // two GPUs
      {"GPU-d,GPU-b", {}},
      {"GPU-b,GPU-b1", {}},  // the same GPU
      {"GPU-b,1", {"GPU-b"}},
      {"1,GPU-b", {"1"}},
      {"MIG-x,MIG-y", {"MIG-x", "MIG-y"}},
      {"MIG-GPU-b1/1/0,MIG-GPU-b1/2/0", {"MIG-GPU-b1/1/0", "MIG-GPU-b1/2/0"}},
      {"MIG-x,GPU-b", {"MIG-x"}},
      {"MIG-x,MIG-x", {}},
  };
  for (const auto& c : kCases) EXPECT_EQ(VisibleGpus(c.visible, kUuids), c.want) << c.visible;
}

TEST(VisibleGpusTest, WithAnOldDriverUuidsAreAssumedToExist) {
  const Names kUnknown(4);
  EXPECT_THAT(VisibleGpus("GPU-x,GPU-y", kUnknown), ElementsAre("GPU-x", "GPU-y"));
  EXPECT_THAT(VisibleGpus("GPU-x,GPU-x", kUnknown), ElementsAre());
  EXPECT_THAT(VisibleGpus("3,4", kUnknown), ElementsAre("3"));
}

absl::StatusOr<int> Count(const std::optional<std::string>& visible, bool narrowed) {
  return CountGpus(visible, narrowed, [](absl::string_view) {});
}

class CountGpusTest : public testing::Test {
 protected:
  CountGpusTest() { Set("8", "0", "0"); }
  static void Set(const char* devices, const char* init_error, const char* count_error) {
    setenv("FAKE_NVML_DEVICES", devices, 1);
    setenv("FAKE_NVML_INIT_ERROR", init_error, 1);
    setenv("FAKE_NVML_COUNT_ERROR", count_error, 1);
  }
  static void ExpectNone(const std::optional<std::string>& visible, const char* words) {
    const auto gpus = Count(visible, false);
    EXPECT_EQ(gpus.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(gpus.status().message()), HasSubstr(words));
  }

  const LoadedNvml fake_{"testing"};
};

TEST_F(CountGpusTest, CountsAllGpusOrTheVisibleGpus) {
  for (const bool narrowed : {false, true}) {
    EXPECT_EQ(*Count(std::nullopt, narrowed), 8);
    EXPECT_EQ(*Count("2,5", narrowed), 2);
    EXPECT_EQ(*Count("GPU-2,GPU-5,GPU-9", narrowed), 2);
    EXPECT_EQ(*Count("MIG-1000,MIG-2000", narrowed), narrowed ? 2 : 1);
  }
}

TEST_F(CountGpusTest, ErrorsStateTheCause) {
  ExpectNone("", "CUDA_VISIBLE_DEVICES=\"\" leaves none of 8 GPUs visible");
  ExpectNone("GPU-9", "CUDA_VISIBLE_DEVICES=\"GPU-9\" leaves none of 8 GPUs visible");
  Set("0", "0", "0");
  ExpectNone(std::nullopt, "reports no device");
  Set("8", "9", "0");
  ExpectNone(std::nullopt, "nvmlInit_v2 failed with error 9");
  Set("8", "0", "15");
  ExpectNone(std::nullopt, "nvmlDeviceGetCount_v2 failed with error 15");
}

}  // namespace
}  // namespace ddprun
