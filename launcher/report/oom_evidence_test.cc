#include "launcher/report/oom_evidence.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kMountsV2[] =
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "31 22 0:28 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kMountsV1[] =
    "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /cg/memory rw,relatime shared:3 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr char kInGroup[] =
    "6,1,1,-;init: started\n4,1742,12793181448,-;Memory cgroup out of memory: Killed process ";
constexpr char kSizes[] =
    " total-vm:5221368kB, anon-rss:4084096kB, file-rss:3672kB, shmem-rss:1024kB, UID:0 pgtables:120kB "
    "oom_score_adj:0\n SUBSYSTEM=x\n";

// Runs OomWatch on a tree of files that imitates the system's files.
class OomWatchTest : public testing::Test {
 protected:
  OomWatchTest() {
    root_ = absl::StrCat(testing::TempDir(), "/oomXXXXXX");
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    Write("/proc/self/ns/none", "");
    EXPECT_EQ(symlink("pid:[4026531836]", (root_ + "/proc/self/ns/pid").c_str()), 0);
    Write("/kmsg", "4,1,1,-;Out of memory: Killed process 7 (old) total-vm:1kB, anon-rss:1kB\n");
  }
  void Write(const std::string& path, const std::string& text, std::ios::openmode mode = std::ios::trunc) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path, mode) << text;
  }
  void Log(const std::string& text) { Write("/kmsg", text, std::ios::app); }
  OomWatch Watch() const {
    return OomWatch({.proc = root_ + "/proc", .root = root_, .kernel_log = root_ + "/kmsg"});
  }

  std::string root_;
};

TEST_F(OomWatchTest, ReadsTheCountersOfCgroupV2) {
  Write("/proc/self/mountinfo", kMountsV2);
  Write("/proc/self/cgroup", "0::/slurm/job7\n");
  Write("/proc/12/cgroup", "0::/slurm/job7\n");
  Write("/cg/slurm/job7/memory.events", "low 0\noom 3\noom_kill 3\noom_group_kill 0\n");
  Write("/cg/slurm/job7/memory.max", "max\n");
  Write("/cg/slurm/memory.max", "4294967296\n");
  Write("/cg/memory.max", "8589934592\n");
  OomWatch watch = Watch();
  watch.Add(12);
  EXPECT_THAT(watch.Evidence(12), IsEmpty()) << "earlier kills must not count";
  Write("/cg/slurm/job7/memory.events", "low 0\noom 4\noom_kill 4\n");
  EXPECT_THAT(
      watch.Evidence(12),
      ElementsAre("the kernel's OOM killer killed 1 process in control group /slurm/job7 (memory limit 4.0 "
                  "GiB) since this worker started"));
  Write("/cg/slurm/job7/memory.events", "low 0\noom 5\noom_kill 5\n");
  EXPECT_THAT(watch.Evidence(12), ElementsAre(HasSubstr("2 processes")));
}

TEST_F(OomWatchTest, ReadsTheCountersOfCgroupV1IfV2HasNoMemoryController) {
  Write("/proc/self/mountinfo", kMountsV1);
  Write("/proc/self/cgroup", "4:cpu:/other\n3:memory:/job\n0::/\n");
  Write("/cg/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  Write("/cg/memory/job/memory.limit_in_bytes", "20971520\n");
  Write("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
  OomWatch watch = Watch();
  watch.Add(12);  // The group of process 12 cannot be read. The group of this process is used instead.
  EXPECT_THAT(watch.Evidence(12), IsEmpty());
  Write("/cg/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_THAT(watch.Evidence(12),
              ElementsAre(HasSubstr("1 process in control group /job (memory limit 20.0 MiB) since")));
}

TEST_F(OomWatchTest, ReadsTheGroupOfEachWorker) {
  Write("/proc/self/mountinfo", kMountsV2);
  Write("/proc/self/cgroup", "0::/agent\n");
  Write("/proc/12/cgroup", "0::/worker\n");
  Write("/proc/13/cgroup", "0::/agent\n");
  Write("/cg/agent/memory.events", "oom_kill 0\n");
  Write("/cg/worker/memory.events", "oom_kill 0\n");
  OomWatch watch = Watch();
  watch.Add(12);
  watch.Add(13);
  Write("/cg/worker/memory.events", "oom_kill 1\n");
  EXPECT_THAT(watch.Evidence(12),
              ElementsAre("the kernel's OOM killer killed 1 process in control group /worker since "
                          "this worker started"));
  EXPECT_THAT(watch.Evidence(13), IsEmpty());
}

TEST_F(OomWatchTest, WorksInAContainerThatSeesOnlyItsOwnGroup) {
  Write("/proc/self/mountinfo", "31 22 0:28 /docker/abc /cg rw - cgroup2 cgroup rw\n");
  Write("/proc/self/cgroup", "0::/docker/abc/sub\n");
  Write("/cg/sub/memory.events", "oom_kill 0\n");
  OomWatch watch = Watch();
  watch.Add(12);
  Write("/cg/sub/memory.events", "oom_kill 1\n");
  EXPECT_THAT(watch.Evidence(12), ElementsAre(HasSubstr("/docker/abc/sub")));
}

TEST_F(OomWatchTest, FindsTheWorkerInTheKernelsLog) {
  Write("/proc/self/mountinfo", kMountsV2);
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/cg/job/memory.events", "oom_kill 0\n");
  Write("/cg/job/memory.max", "4294967296\n");
  OomWatch watch = Watch();
  for (const pid_t pid : {7, 12, 13, 14}) watch.Add(pid);
  EXPECT_THAT(watch.Evidence(7), IsEmpty()) << "records from before the OomWatch was created must not count";
  Log(absl::StrCat(kInGroup, "12 (pt) main)", kSizes));
  Log(absl::StrCat("3,2,3,-;Out of memory: Killed process 13 (train)", kSizes));
  Log("3,2,3,-;Out of memory: Killed process x (train) total-vm:\n3,2,3,-;Killed process 14");
  EXPECT_THAT(
      watch.Evidence(12),
      ElementsAre("the kernel's OOM killer killed process 12 (pt) main), which used 3.9 GiB: out of memory "
                  "in control group /job (memory limit 4.0 GiB)"));
  EXPECT_THAT(watch.Evidence(13),
              ElementsAre("the kernel's OOM killer killed process 13 (train), which used 3.9 GiB: "
                          "the machine was out of memory"));
  EXPECT_THAT(watch.Evidence(7), IsEmpty());
  EXPECT_THAT(watch.Evidence(12), ElementsAre(HasSubstr("process 12")))
      << "a second call must return the same evidence";
}

TEST_F(OomWatchTest, IgnoresTheLogInAnotherPidNamespace) {
  std::filesystem::remove(root_ + "/proc/self/ns/pid");
  ASSERT_EQ(symlink("pid:[4026532198]", (root_ + "/proc/self/ns/pid").c_str()), 0);
  OomWatch watch = Watch();
  watch.Add(12);
  Log(absl::StrCat(kInGroup, "12 (another process)", kSizes));
  EXPECT_THAT(watch.Evidence(12), IsEmpty());
}

TEST_F(OomWatchTest, HasNoEvidenceIfNothingCanBeRead) {
  OomWatch watch({.proc = "/no/such", .root = "/no/such", .kernel_log = "/no/such"});
  watch.Add(12);
  EXPECT_THAT(watch.Evidence(12), IsEmpty());
  Write("/proc/self/mountinfo", "\n - \n1 2 3 - cgroup2\ngarbage\n");
  Write("/proc/self/cgroup", "0\n0::\n::::\n");
  OomWatch other = Watch();
  EXPECT_THAT(other.Evidence(12), IsEmpty());
}

}  // namespace
}  // namespace ddprun
