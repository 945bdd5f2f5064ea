// Tests the choice of processors with the GPUs of a fake driver and a file tree like /sys.
#include "launcher/numa/binding.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Uses the real processors of this machine, and fake GPUs at PCI addresses that the test chooses.
class BindingTest : public testing::Test {
 protected:
  BindingTest()
      : sys_(absl::StrCat(testing::TempDir(), "/",
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    const std::string path =
        absl::StrCat(std::getenv("TEST_SRCDIR"), "/ddprun/launcher/config/testing/libnvidia-ml.so.1");
    fake_ = dlopen(path.c_str(), RTLD_NOW);
    EXPECT_NE(fake_, nullptr) << dlerror();
    setenv("FAKE_NVML_DEVICES", "2", 1);
    setenv("FAKE_NVML_PCI", "0000:10:00.0,0000:20:00.0", 1);
    std::filesystem::create_directories(sys_);
    std::filesystem::create_directory_symlink("/sys/devices", sys_ + "/devices");
    allowed_ = AllowedCpus().value();
    // GPU 0 is on the node of the first allowed processor. GPU 1 is on the node of the last allowed
    // processor.
    topology_ = ReadCpuTopology("/sys", allowed_).value();
    near_first_ = topology_.cpus.at(*allowed_.begin()).node;
    near_last_ = topology_.cpus.at(*allowed_.rbegin()).node;
    WriteNode("0000:10:00.0", near_first_);
    WriteNode("0000:20:00.0", near_last_);
  }
  ~BindingTest() override { dlclose(fake_); }
  void WriteNode(const std::string& address, int node) {
    const std::string directory = absl::StrCat(sys_, "/bus/pci/devices/", address);
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/numa_node") << node << "\n";
  }
  std::set<int> AllowedOn(int node) const {
    std::set<int> cpus;
    for (const auto& [number, cpu] : topology_.cpus) {
      if (cpu.node == node && allowed_.count(number) > 0) cpus.insert(number);
    }
    return cpus;
  }

  const std::string sys_;
  void* fake_;
  std::set<int> allowed_;
  CpuTopology topology_;
  int near_first_ = 0;
  int near_last_ = 0;
};

TEST_F(BindingTest, EachWorkerGetsTheNodeOfItsGpu) {
  const auto sets = BindToNuma(NumaBinding::kNode, 2, std::nullopt, sys_);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(*sets, ElementsAre(AllowedOn(near_first_), AllowedOn(near_last_)));
  EXPECT_EQ((*sets)[0].count(*allowed_.begin()), 1u);
}

TEST_F(BindingTest, FollowsTheOrderOfVisibleDevices) {
  for (const char* visible :
       {"1, 0", "GPU-1, GPU-0", "MIG-1000,MIG-0000", "MIG-GPU-1000/1/0,MIG-GPU-0000/1/0"}) {
    const auto sets = BindToNuma(NumaBinding::kNode, 2, visible, sys_);
    ASSERT_TRUE(sets.ok()) << visible << ": " << sets.status();
    EXPECT_THAT(*sets, ElementsAre(AllowedOn(near_last_), AllowedOn(near_first_))) << visible;
  }
}

TEST_F(BindingTest, ErrorsBeginWithTheOption) {
  const auto error = [this](NumaBinding binding, const std::optional<std::string>& visible) {
    return std::string(BindToNuma(binding, 2, visible, sys_).status().message());
  };
  EXPECT_THAT(error(NumaBinding::kExclusive, "1"),
              AllOf(HasSubstr("--numa-binding=exclusive: "), HasSubstr("1 is visible")));
  EXPECT_THAT(error(NumaBinding::kCoreComplex, "MIG-7000,MIG-0000"),
              AllOf(HasSubstr("--numa-binding=core-complex: "), HasSubstr("GPU MIG-7000")));
  std::filesystem::remove(sys_ + "/bus/pci/devices/0000:20:00.0/numa_node");
  EXPECT_THAT(error(NumaBinding::kNode, std::nullopt),
              AllOf(HasSubstr("--numa-binding=node: GPU 1: "), HasSubstr("numa_node cannot be read")));
  setenv("FAKE_NVML_INIT_ERROR", "9", 1);
  EXPECT_THAT(error(NumaBinding::kSocket, std::nullopt),
              AllOf(HasSubstr("--numa-binding=socket: "), HasSubstr("nvmlInit_v2 failed with error 9")));
  unsetenv("FAKE_NVML_INIT_ERROR");
}

}  // namespace
}  // namespace ddprun
