#include "launcher/config/nvml.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/testing/loaded_nvml.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Processes = std::vector<GpuProcess>;

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    setenv("FAKE_NVML_DEVICES", "2", 1);
    for (const char* name : {"FAKE_NVML_INIT_ERROR", "FAKE_NVML_COUNT_ERROR", "FAKE_NVML_PROCESSES",
                             "FAKE_NVML_MIG_ERROR", "FAKE_NVML_MEMORY", "FAKE_NVML_LOST"}) {
      unsetenv(name);
    }
  }
  static Nvml Open() {
    absl::StatusOr<Nvml> nvml = Nvml::Open();
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    return *std::move(nvml);
  }
};

class PciAddressTest : public NvmlTest {
 protected:
  PciAddressTest() { setenv("FAKE_NVML_PCI", "0000:10:00.0,0001:dc:1f.0", 1); }
  static absl::StatusOr<std::string> Address(absl::string_view device) {
    const auto nvml = Nvml::Open();
    return nvml.ok() ? nvml->PciAddress(device) : nvml.status();
  }

  const LoadedNvml fake_{"testing"};
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

TEST_F(PciAddressTest, AGpuIsFoundByItsUuidWhileAnotherIsLost) {
  setenv("FAKE_NVML_LOST", "0", 1);
  EXPECT_EQ(Address("GPU-1000").value_or("none"), "0001:dc:1f.0");
  EXPECT_EQ(Address("MIG-GPU-1000/1/0").value_or("none"), "0001:dc:1f.0");
  EXPECT_THAT(std::string(Address("GPU-0000").status().message()), HasSubstr("no GPU has that UUID"));
}

// The forms of the function in the versions of the driver.
class ProcessesTest : public NvmlTest, public testing::WithParamInterface<const char*> {
 protected:
  const LoadedNvml fake_{GetParam()};
};

TEST_P(ProcessesTest, AreListedForEachDevice) {
  setenv("FAKE_NVML_PROCESSES", "1:4242:1073741824,0:7:?,1:77:4096,1:78:8192", 1);
  const Nvml nvml = Open();
  EXPECT_EQ(*nvml.Processes("0"), (Processes{{.pid = 7}}));
  const Processes kOther = {{4242, 1 << 30}, {77, 4096}, {78, 8192}};
  EXPECT_EQ(*nvml.Processes("1"), kOther);
  EXPECT_EQ(*nvml.Processes("GPU-1"), kOther);
}

TEST_P(ProcessesTest, MayBeManyOrNone) {
  std::string many;
  for (int i = 1; i <= 300; ++i) absl::StrAppend(&many, i == 1 ? "" : ",", "0:", i, ":1");
  setenv("FAKE_NVML_PROCESSES", many.c_str(), 1);
  const Nvml nvml = Open();
  const absl::StatusOr<Processes> all = nvml.Processes("0");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_THAT(*all, SizeIs(300));
  EXPECT_EQ(all->back(), (GpuProcess{300, 1}));
  EXPECT_THAT(*nvml.Processes("1"), IsEmpty());
}

TEST_P(ProcessesTest, AreThoseOfAMigDeviceIfTheDriverTells) {
  setenv("FAKE_NVML_PROCESSES", "1:5:1,M1:6:1", 1);
  const Nvml nvml = Open();
  EXPECT_EQ(*nvml.Processes("MIG-1000"), (Processes{{6, 1}}));
  setenv("FAKE_NVML_MIG_ERROR", "3", 1);
  EXPECT_EQ(*nvml.Processes("MIG-1000"), (Processes{{5, 1}})) << "those of the whole GPU";
}

INSTANTIATE_TEST_SUITE_P(Drivers, ProcessesTest, testing::Values("testing", "testing/old"));

TEST_F(NvmlTest, MemoryHealthIsReadAtEachCall) {
  const LoadedNvml fake("testing");
  const std::string path = testing::TempDir() + "/memory";
  setenv("FAKE_NVML_MEMORY", path.c_str(), 1);
  std::ofstream(path) << "0 0 0 0\n1 3 0 0\n";
  const Nvml nvml = Open();
  EXPECT_EQ(*nvml.MemoryHealth("0"), GpuMemoryHealth{.uncorrected = 0});
  EXPECT_EQ(*nvml.MemoryHealth("MIG-1000"), GpuMemoryHealth{.uncorrected = 3});
  std::ofstream(path) << "0 1 1 0\n1 4 0 1\n";
  EXPECT_EQ(*nvml.MemoryHealth("0"), (GpuMemoryHealth{.uncorrected = 1, .remap_pending = true}));
  EXPECT_EQ(*nvml.MemoryHealth("1"), (GpuMemoryHealth{.uncorrected = 4, .remap_failed = true}));
}

TEST_F(NvmlTest, BusyPercent) {
  const LoadedNvml fake("testing");
  setenv("FAKE_NVML_BUSY", "100 3", 1);
  const Nvml nvml = Open();
  EXPECT_EQ(*nvml.BusyPercent("0"), 100);
  EXPECT_EQ(*nvml.BusyPercent("MIG-1000"), 3);
  unsetenv("FAKE_NVML_BUSY");
  EXPECT_THAT(std::string(nvml.BusyPercent("0").status().message()),
              HasSubstr("GPU 0: nvmlDeviceGetUtilizationRates failed with error "));
}

TEST_F(NvmlTest, MemoryHealthIsUnknownWithoutEcc) {
  const LoadedNvml fake("testing");
  EXPECT_EQ(*Open().MemoryHealth("0"), GpuMemoryHealth{});
}

TEST_F(NvmlTest, UuidOfAPartIsThatOfItsGpu) {
  const LoadedNvml fake("testing");
  const Nvml nvml = Open();
  for (const char* device : {"1", "GPU-1", "MIG-1000", "MIG-GPU-1000/1/0"})
    EXPECT_EQ(nvml.UuidOf(device).value_or("none"), "GPU-1000") << device;
}

TEST_F(NvmlTest, AnOldDriverLacksFunctions) {
  const LoadedNvml fake("testing/oldest");
  const Nvml nvml = Open();
  EXPECT_THAT(std::string(nvml.Processes("0").status().message()),
              HasSubstr("GPU 0: libnvidia-ml.so.1 lacks nvmlDeviceGetComputeRunningProcesses"));
  EXPECT_EQ(*nvml.MemoryHealth("0"), GpuMemoryHealth{});
  EXPECT_THAT(std::string(nvml.BusyPercent("0").status().message()), HasSubstr("the driver is too old"));
}

TEST_F(NvmlTest, ErrorsNameTheDevice) {
  const LoadedNvml fake("testing");
  const Nvml nvml = Open();
  for (const absl::Status& status :
       {nvml.Processes("7").status(), nvml.MemoryHealth("7").status(), nvml.UuidOf("7").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("GPU 7: "));
  }
}

}  // namespace
}  // namespace ddprun
