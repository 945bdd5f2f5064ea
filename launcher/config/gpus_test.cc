#include "launcher/config/gpus.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(VisibleGpusTest, FollowsTheCudaRuntime) {
  EXPECT_THAT(VisibleGpus(std::nullopt, 3), ElementsAre("0", "1", "2"));
  const struct {
    const char* visible;
    std::vector<std::string> want;
  } kCases[] = {{"", {}},   {"0", {"0"}},      {"0,1", {"0", "1"}}, {"3, 2", {"3", "2"}},
                {"-1", {}}, {"0,-1,1", {"0"}}, {"0,4,1", {"0"}},    {"GPU-a,1", {"GPU-a", "1"}},
                {"x", {}},  {"NoDevFiles", {}}};
  for (const auto& c : kCases) EXPECT_EQ(VisibleGpus(c.visible, 4), c.want) << c.visible;
}

// Loads the fake library. When the code under test later opens a library of the same name, dlopen returns the
// fake, because it is already loaded.
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

TEST_F(CountGpusTest, CountsAllGpusOrTheVisibleGpus) {
  EXPECT_EQ(*CountGpus(std::nullopt), 8);
  EXPECT_EQ(*CountGpus("2,5"), 2);
}

TEST_F(CountGpusTest, ErrorsStateTheCause) {
  ExpectNone("", "CUDA_VISIBLE_DEVICES=\"\" leaves none of 8 GPUs visible");
  Set("0", "0", "0");
  ExpectNone(std::nullopt, "reports no device");
  Set("8", "9", "0");
  ExpectNone(std::nullopt, "nvmlInit_v2 failed with error 9");
  Set("8", "0", "15");
  ExpectNone(std::nullopt, "nvmlDeviceGetCount_v2 failed with error 15");
}

class PciAddressTest : public CountGpusTest {
 protected:
  PciAddressTest() { setenv("FAKE_NVML_PCI", "0000:10:00.0,0001:dc:1f.0", 1); }
  static absl::StatusOr<std::string> Address(absl::string_view device) {
    Set("2", "0", "0");
    const auto nvml = Nvml::Open();
    return nvml.ok() ? nvml->PciAddress(device) : nvml.status();
  }
};

TEST_F(PciAddressTest, AcceptsEveryFormOfDeviceName) {
  for (const char* device : {"0", "GPU-0000", "GPU-0", "MIG-0000", "MIG-GPU-0000/1/0"})
    EXPECT_EQ(Address(device).value_or("none"), "0000:10:00.0") << device;
  for (const char* device : {"1", "GPU-1", "MIG-1000"})
    EXPECT_EQ(Address(device).value_or("none"), "0001:dc:1f.0") << device;
}

TEST_F(PciAddressTest, FailsForAMissingDevice) {
  for (const char* device : {"2", "GPU-3", "MIG-2000", "MIG-GPU-9/1/0", "x"}) {
    const absl::Status status = Address(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << device;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("GPU ", device, ": ")));
  }
}

}  // namespace
}  // namespace ddprun
