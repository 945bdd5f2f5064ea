#include "launcher/config/gpu_count.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(CountVisibleTest, AsTheCudaRuntimeReadsTheList) {
  const struct {
    const char* visible;
    int want;
  } kCases[] = {{"", 0},       {"0", 1},     {"0,1", 2},     {"3, 2", 2}, {"-1", 0},
                {"0,-1,1", 1}, {"0,4,1", 1}, {"GPU-a,1", 2}, {"x", 0},    {"NoDevFiles", 0}};
  for (const auto& c : kCases) EXPECT_EQ(CountVisible(c.visible, 4), c.want) << c.visible;
}

// A library that is already open is found by its name, so the fake is taken for the driver's.
class CountGpusTest : public testing::Test {
 protected:
  CountGpusTest() {
    const std::string path =
        absl::StrCat(std::getenv("TEST_SRCDIR"), "/ddprun/launcher/config/testing/libnvidia-ml.so.1");
    fake_ = dlopen(path.c_str(), RTLD_NOW);
    EXPECT_NE(fake_, nullptr) << dlerror();
    Set("8", "0", "0");
  }
  ~CountGpusTest() override { dlclose(fake_); }
  static void Set(const char* devices, const char* init_error, const char* count_error) {
    setenv("FAKE_NVML_DEVICES", devices, 1);
    setenv("FAKE_NVML_INIT_ERROR", init_error, 1);
    setenv("FAKE_NVML_COUNT_ERROR", count_error, 1);
  }
  static void ExpectNone(const std::optional<std::string>& visible, const char* words) {
    const auto gpus = CountGpus(visible);
    EXPECT_EQ(gpus.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(gpus.status().message()), HasSubstr(words));
  }

  void* fake_;
};

TEST_F(CountGpusTest, AllOrThoseVisible) {
  EXPECT_EQ(*CountGpus(std::nullopt), 8);
  EXPECT_EQ(*CountGpus("2,5"), 2);
}

TEST_F(CountGpusTest, NoneSaysWhy) {
  ExpectNone("", "CUDA_VISIBLE_DEVICES=\"\" leaves none of 8 GPUs visible");
  Set("0", "0", "0");
  ExpectNone(std::nullopt, "sees no device");
  Set("8", "9", "0");
  ExpectNone(std::nullopt, "nvmlInit_v2 gave error 9");
  Set("8", "0", "15");
  ExpectNone(std::nullopt, "nvmlDeviceGetCount_v2 gave error 15");
}

}  // namespace
}  // namespace ddprun
