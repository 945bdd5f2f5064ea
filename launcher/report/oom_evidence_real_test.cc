// Triggers the real OOM killer. This test is a separate target because it does not work in a sandbox.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/report/oom_evidence.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A real control group with a limit of 16 MiB. The destructor removes it.
class SmallGroup {
 public:
  SmallGroup() {
    for (const std::string top : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      dir_ = absl::StrCat(top, "/ddprun_test_", getpid());
      if (mkdir(dir_.c_str(), 0755) != 0) continue;
      for (const char* limit : {"/memory.max", "/memory.limit_in_bytes"}) {
        std::ofstream file(dir_ + limit, std::ios::in);
        if (file << 16 * 1024 * 1024 << std::flush) return;
      }
      rmdir(dir_.c_str());
    }
    dir_.clear();
  }
  ~SmallGroup() { EXPECT_TRUE(dir_.empty() || rmdir(dir_.c_str()) == 0) << dir_; }
  bool ok() const { return !dir_.empty(); }
  // Moves the calling process, a forked child, into the group.
  bool Enter() const { return bool(std::ofstream(dir_ + "/cgroup.procs", std::ios::in) << 0 << std::flush); }

 private:
  std::string dir_;
};

TEST(OomWatchRealTest, ReportsAWorkerThatExceedsTheLimitOfItsGroup) {
  const SmallGroup group;
  if (!group.ok()) GTEST_SKIP() << "cannot create a control group with a memory limit on this system";
  OomWatch watch;
  int entered[2], proceed[2];
  ASSERT_EQ(pipe2(entered, O_CLOEXEC) + pipe2(proceed, O_CLOEXEC), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    char c = group.Enter() ? 'y' : 'n';
    if (write(entered[1], &c, 1) != 1 || read(proceed[0], &c, 1) != 1) _exit(1);
    for (;;) {  // Allocate memory until the OOM killer kills this process.
      volatile char* memory = static_cast<char*>(malloc(1 << 20));
      for (int i = 0; i < 1 << 20; i += 1024) memory[i] = 1;
    }
  }
  char c = 0;
  ASSERT_EQ(read(entered[0], &c, 1), 1);
  watch.Add(worker);
  ASSERT_EQ(write(proceed[1], "x", 1), 1);
  if (c == 'n') kill(worker, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  if (c == 'n') GTEST_SKIP() << "cannot move a process into the control group on this system";
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_THAT(
      watch.Evidence(worker),
      ElementsAre(AllOf(HasSubstr("the kernel's OOM killer killed "),
                        HasSubstr(absl::StrCat("/ddprun_test_", getpid(), " (memory limit 16.0 MiB)")))));
}

}  // namespace
}  // namespace ddprun
