#include "launcher/numa/cpu_topology.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(CpuListTest, ReadsAndWritesTheKernelsFormat) {
  for (const char* text : {"", "0", "0-2,4,6-7", "3,5", "0-127"})
    EXPECT_EQ(FormatCpuList(ParseCpuList(text).value_or(std::set<int>{-1})), text);
  EXPECT_THAT(ParseCpuList("4, 2-3,2\n").value(), ElementsAre(2, 3, 4));
}

TEST(CpuListTest, RejectsMalformedLists) {
  for (const char* text : {"x", "1-", "-1", "3-2", "0-1-2", "0-99999999999", "0-70000"}) {
    const auto cpus = ParseCpuList(text);
    EXPECT_EQ(cpus.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(cpus.status().message()), HasSubstr(text));
  }
}

// Creates a file tree like /sys.
class SysTreeTest : public testing::Test {
 protected:
  SysTreeTest()
      : sys_(absl::StrCat(testing::TempDir(), "/",
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {}

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = absl::StrCat(sys_, "/", path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void WriteCpu(int cpu, const std::string& siblings, int socket) {
    const std::string topology = absl::StrCat("devices/system/cpu/cpu", cpu, "/topology/");
    Write(topology + "thread_siblings_list", siblings);
    Write(topology + "physical_package_id", absl::StrCat(socket));
  }
  void WriteCache(int cpu, int index, const std::string& type, int level, const std::string& shared) {
    const std::string cache = absl::StrCat("devices/system/cpu/cpu", cpu, "/cache/index", index, "/");
    Write(cache + "type", type);
    Write(cache + "level", absl::StrCat(level));
    Write(cache + "shared_cpu_list", shared);
  }

  const std::string sys_;
};

TEST_F(SysTreeTest, ReadsSharedCoresCachesAndSockets) {
  Write("devices/system/node/node0/cpulist", "0-1");
  Write("devices/system/node/node1/cpulist", "2-3");
  Write("devices/system/node/node2/cpulist", "");  // a node that has only memory
  Write("devices/system/node/possible", "0-7");
  for (const int cpu : {0, 1}) WriteCpu(cpu, "0-1", 0);
  for (const int cpu : {2, 3}) WriteCpu(cpu, absl::StrCat(cpu), 1);
  for (const int cpu : {0, 1, 2, 3}) {
    WriteCache(cpu, 0, "Data", 1, absl::StrCat(cpu));
    WriteCache(cpu, 1, "Instruction", 4, "0");
    WriteCache(cpu, 2, "Unified", 3, cpu < 2 ? "0-1" : "2-3");
    WriteCache(cpu, 3, "Unified", 2, absl::StrCat(cpu));
  }
  const auto topology = ReadCpuTopology(sys_, {1, 2, 3, 9});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(topology->cpus, ElementsAre(std::pair(0, Cpu{0, 0, 0, 0}), std::pair(1, Cpu{0, 0, 0, 0}),
                                          std::pair(2, Cpu{1, 1, 2, 2}), std::pair(3, Cpu{1, 1, 3, 2})));
  EXPECT_THAT(topology->allowed, ElementsAre(1, 2, 3)) << "processor 9 is not online and must be ignored";
}

TEST_F(SysTreeTest, MissingFilesLeaveFieldsUnset) {
  Write("devices/system/cpu/online", "0-1");
  const auto topology = ReadCpuTopology(sys_, {0, 1});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_THAT(topology->cpus, ElementsAre(std::pair(0, Cpu{}), std::pair(1, Cpu{})));
}

TEST_F(SysTreeTest, ErrorsNameTheFile) {
  EXPECT_THAT(std::string(ReadCpuTopology(sys_, {0}).status().message()),
              AllOf(HasSubstr(sys_), HasSubstr("cpu/online cannot be read")));
  Write("devices/system/node/node0/cpulist", "many");
  EXPECT_THAT(std::string(ReadCpuTopology(sys_, {0}).status().message()),
              AllOf(HasSubstr("node0/cpulist"), HasSubstr("\"many\"")));
}

TEST_F(SysTreeTest, ReadsTheNodeOfADevice) {
  Write("bus/pci/devices/0000:10:00.0/numa_node", "1");
  Write("bus/pci/devices/0000:20:00.0/numa_node", "-1");
  Write("bus/pci/devices/0000:30:00.0/numa_node", "?");
  EXPECT_EQ(NumaNodeOf(sys_, "0000:10:00.0").value_or(-1), 1);
  EXPECT_EQ(NumaNodeOf(sys_, "0000:20:00.0").value_or(-1), 0);
  EXPECT_THAT(std::string(NumaNodeOf(sys_, "0000:30:00.0").status().message()), HasSubstr("\"?\""));
  EXPECT_EQ(NumaNodeOf(sys_, "0000:40:00.0").status().code(), absl::StatusCode::kNotFound);
}

TEST(ThisMachineTest, HasAReadableTopology) {
  const auto allowed = AllowedCpus();
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_THAT(*allowed, Not(IsEmpty()));
  const auto topology = ReadCpuTopology("/sys", *allowed);
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->allowed, *allowed);
  EXPECT_THAT(topology->cpus, SizeIs(testing::Ge(allowed->size())));
}

}  // namespace
}  // namespace ddprun
