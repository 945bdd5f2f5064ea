// Tests that searches find real processes, and that a signal reaches exactly the process that was found.
#include "launcher/process/process_tree.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/lacking.h"

namespace ddprun {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

pid_t ForkSleeper() {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (;;) pause();
}

void KillAndReap(pid_t pid) {
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(ProcessTreeTest, SignalsTheProcessThatWasFound) {
  const pid_t child = ForkSleeper();
  const std::vector<ProcessEntry> seen = Descendants();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].pid, child);
  EXPECT_NE(seen[0].start_time, 0u);
  EXPECT_TRUE(SignalProcess(seen[0], SIGKILL));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(SignalProcess(seen[0], SIGKILL)) << "an ended process must not be signalled";
  EXPECT_THAT(Descendants(), IsEmpty());
}

// Must run in the first process of a new pid namespace, because this process may choose the next pid.
void SignalALaterProcess() {
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(mount("proc", "/proc", "proc", 0, nullptr), 0);
  const pid_t first = ForkSleeper();
  const std::vector<ProcessEntry> seen = Descendants();
  ASSERT_THAT(seen, SizeIs(1));
  KillAndReap(first);
  // Start times have a resolution of 10 ms, so repeat until they differ.
  pid_t later = 0;
  do {
    if (later > 0) KillAndReap(later);
    std::ofstream("/proc/sys/kernel/ns_last_pid") << first - 1;
    later = ForkSleeper();
    ASSERT_EQ(later, first) << "the pid was not reused";
  } while (ReadProcess(later)->start_time == seen[0].start_time);
  EXPECT_FALSE(SignalProcess(seen[0], SIGKILL));
  EXPECT_EQ(waitpid(later, nullptr, WNOHANG), 0) << "the later process must still be alive";
  KillAndReap(later);
}

TEST(ProcessTreeTest, DoesNotSignalALaterProcessWithTheSamePid) {
  InChild([] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return;  // not permitted on this machine
    InChild(SignalALaterProcess);
  });
}

}  // namespace
}  // namespace ddprun
