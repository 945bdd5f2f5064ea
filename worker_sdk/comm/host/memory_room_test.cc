#include "worker_sdk/comm/host/memory_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ddprun/status.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// A directory with the files of the kernel that matter.
class MemoryRoomTest : public testing::Test {
 protected:
  MemoryRoomTest() : root_(testing::TempDir() + "/root.XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    Write("/proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: 1000000 kB\n");
  }
  ~MemoryRoomTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void WriteV2(const std::string& group, const std::string& limit, const std::string& used,
               const std::string& stat) {
    Write(group + "/memory.max", limit + "\n");
    Write(group + "/memory.current", used + "\n");
    Write(group + "/memory.stat", stat);
  }

  std::string root_;
};

TEST_F(MemoryRoomTest, WithoutControlGroupsTheMachineIsTheLimit) {
  const MemoryRoom room = RoomOfThisProcess(root_);
  EXPECT_EQ(room.num_bytes, 1000000u * 1024);
  EXPECT_EQ(room.limited_by, "this machine");
}

TEST_F(MemoryRoomTest, WithoutAnyFileThereIsNoLimit) {
  std::filesystem::remove_all(root_ + "/proc");
  EXPECT_EQ(RoomOfThisProcess(root_).num_bytes, UINT64_MAX);
}

TEST_F(MemoryRoomTest, TheTightestControlGroupOfVersion2IsTheLimit) {
  Write("/proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  Write("/proc/self/cgroup", "0::/job/step\n");
  WriteV2("/sys/fs/cgroup/job/step", "max", "5000", "");
  WriteV2("/sys/fs/cgroup/job", "10000", "6000", "anon 1\ninactive_file 1000\nactive_file 500\nshmem 1\n");
  const MemoryRoom room = RoomOfThisProcess(root_);
  EXPECT_EQ(room.num_bytes, 10000u - (6000 - 1500));
  EXPECT_EQ(room.limited_by, "control group /job");
}

TEST_F(MemoryRoomTest, AControlGroupOfVersion1InAContainer) {
  Write("/proc/self/mountinfo",
        "30 23 0:27 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "31 23 0:28 /docker/7 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  Write("/proc/self/cgroup", "4:memory:/docker/7\n3:cpu:/docker/7\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "20000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "21000\n");
  Write("/sys/fs/cgroup/memory/memory.stat",
        "inactive_file 9\ntotal_inactive_file 2000\ntotal_active_file 0\n");
  const MemoryRoom room = RoomOfThisProcess(root_);
  EXPECT_EQ(room.num_bytes, 1000u);
  EXPECT_EQ(room.limited_by, "control group /");
}

TEST_F(MemoryRoomTest, AFullControlGroupHasNoRoom) {
  Write("/proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/proc/self/cgroup", "0::/\n");
  WriteV2("/sys/fs/cgroup", "10000", "12000", "");
  EXPECT_EQ(RoomOfThisProcess(root_).num_bytes, 0u);
}

TEST_F(MemoryRoomTest, MalformedFilesAreNoLimit) {
  Write("/proc/self/mountinfo", "- \n29 23 - cgroup2\n29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/proc/self/cgroup", "\n:\n0:\n0::/job\n");
  WriteV2("/sys/fs/cgroup/job", "much", "", "inactive_file\n");
  EXPECT_EQ(RoomOfThisProcess(root_).limited_by, "this machine");
}

TEST(CheckRoomTest, TheErrorNamesTheSizesAndTheLimit) {
  const MemoryRoom room{.num_bytes = 3 << 20, .limited_by = "control group /job"};
  EXPECT_EQ(CheckRoom(room, 3 << 20, "segments"), OkStatus());
  const Status status = CheckRoom(room, 12 << 20, "segments of 2 ranks");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "segments of 2 ranks need 12.0 MiB of shared memory, and control group /job has 3.0 MiB left"));
}

TEST(RoomOfThisProcessTest, ThisMachineHasALimit) {
  const MemoryRoom room = RoomOfThisProcess();
  EXPECT_GT(room.num_bytes, 0u);
  EXPECT_LT(room.num_bytes, UINT64_MAX);
}

}  // namespace
}  // namespace ddprun
