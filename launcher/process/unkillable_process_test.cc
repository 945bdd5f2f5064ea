// Tests how WardenClient and StuckProcessMonitor handle processes that SIGKILL does not end.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/monitor/stuck_process_monitor.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ThreadsInFile() {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/ddprun/launcher/process/threads_in_file");
}

TEST(UnkillableProcessTest, KillAllReportsAnUnkillableProcessAfterItsLimit) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  FakeAgent agent;
  const uint64_t other = agent.StartAndWaitReady(kHardToKill);
  const uint64_t stuck = agent.next_id++;
  agent.client().Spawn(stuck, agent.Command({"/bin/cat", (*file)->path()}));
  ASSERT_TRUE(agent.RunUntil([&] { return agent.started.count(stuck) > 0; }));
  ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
  const pid_t pid = agent.started.at(stuck);

  const auto limit = seconds(1);
  const auto start = std::chrono::steady_clock::now();
  std::vector<LeftOver> left = agent.KillAll(limit);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].pid, pid);
  EXPECT_EQ(left[0].state, 'D');
  EXPECT_EQ(left[0].name, "cat");
  EXPECT_THAT(left[0].kernel_wait, HasSubstr("wait"))
      << "a wait function is expected, such as request_wait_answer";
  EXPECT_THAT(ToString(left[0]), HasSubstr("in state D, waiting in "));
  EXPECT_GE(took, limit);
  EXPECT_LT(took, kPatience);
  EXPECT_EQ(agent.ended.at(other), ExitInfo(Signaled{SIGKILL, false})) << "the other worker must have ended";
  EXPECT_EQ(agent.ended.count(stuck), 0u);
  EXPECT_THAT(agent.MarkedProcesses(), ElementsAre(pid));

  // In the next round, the stuck process is reported again but not waited for.
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  agent.StartAndWaitReady(kHardToKill);
  left = agent.KillAll(std::chrono::hours(1));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].pid, pid);

  // Release() makes the stuck system call return, so SIGKILL takes effect.
  (*file)->Release();
  EXPECT_EQ(agent.RunToEnd(stuck), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(UnkillableProcessTest, TheDestructorDoesNotWaitForProcessesAlreadyReported) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  FakeAgent agent;
  agent.client().Spawn(agent.next_id++, agent.Command({"/bin/cat", (*file)->path()}));
  ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
  EXPECT_EQ(agent.KillAll(milliseconds(50)).size(), 1u);
  const auto start = std::chrono::steady_clock::now();
  agent.Destroy();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5))
      << "the destructor must not wait for the warden's limit of 10 s";
  (*file)->Release();
}

// The program is on a file system that does not respond, so exec does not return.
TEST(UnkillableProcessTest, AHangInExecDoesNotDelayOtherWorkers) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  FakeAgent agent;
  // The worker that hangs is forked while the other workers run, so it inherits the warden's descriptors for
  // those workers.
  const uint64_t first = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  const uint64_t other = agent.StartAndWaitReady(kHardToKill);
  const uint64_t hangs = agent.next_id++;
  agent.client().Spawn(hangs, agent.Command({(*file)->path()}));
  ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
  kill(agent.started.at(first), SIGKILL);
  EXPECT_EQ(agent.RunToEnd(first), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  agent.client().Signal(other, SIGUSR1);
  EXPECT_EQ(agent.RunToEnd(other), ExitInfo(Signaled{SIGUSR1, false}));

  const std::vector<LeftOver> left = agent.KillAll(milliseconds(500));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].state, 'D');
  EXPECT_EQ(left[0].name, "file") << "the process must be named after its program file";
  EXPECT_EQ(agent.ended.count(hangs), 0u);
  (*file)->Release();
  EXPECT_EQ(agent.RunToEnd(hangs), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(agent.lost, IsEmpty());
}

TEST(UnkillableProcessTest, AHangInExecIsReported) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  FakeAgent agent;
  const uint64_t hangs = agent.next_id++;
  agent.client().Spawn(hangs, agent.Command({(*file)->path()}));
  ASSERT_TRUE(agent.RunUntil([&] { return !agent.slow.empty(); }));
  ASSERT_EQ(agent.slow.count(hangs), 1u);
  EXPECT_EQ(agent.slow.at(hangs).name, "file");
  EXPECT_THAT(agent.slow.at(hangs).kernel_wait, HasSubstr("wait"));
  EXPECT_THAT(agent.started, IsEmpty());
  // If the warden is lost while exec is pending, the worker counts as never started.
  kill(agent.client().warden_pid(), SIGKILL);
  ASSERT_TRUE(agent.RunUntil([&] { return !agent.lost.empty(); }));
  (*file)->Release();
  EXPECT_TRUE(std::holds_alternative<NeverStarted>(agent.RunToEnd(hangs)));
}

// If SIGKILL does not end every thread, the process keeps its resources until the last thread has ended.
TEST(UnkillableProcessTest, FindsAThreadThatDoesNotEnd) {
  for (const bool main_exits : {false, true}) {
    auto file = HangingFile::Create(testing::TempDir());
    if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
    FakeAgent agent;
    std::map<pid_t, std::string> found;
    StuckProcessMonitor watch(agent.io(), milliseconds(200),
                              [&](pid_t pid, const std::string& where) { found[pid] = where; });
    const uint64_t id = agent.next_id++;
    SpawnCommand command = agent.Command({ThreadsInFile(), (*file)->path()});
    if (main_exits) command.argv.insert(command.argv.begin() + 1, "--main-exits");
    agent.client().Spawn(id, command);
    ASSERT_TRUE(agent.RunUntil([&] { return agent.started.count(id) > 0; }));
    ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
    const pid_t pid = agent.started.at(id);
    std::vector<LeftOver> left = agent.KillAll(milliseconds(500));
    ASSERT_THAT(ReadAll(absl::StrCat("/proc/", pid, "/stat")), HasSubstr(") Z "))
        << "the main thread must have ended";
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0].pid, pid);
    EXPECT_EQ(left[0].state, 'D');
    EXPECT_THAT(left[0].kernel_wait, HasSubstr("wait"));
    EXPECT_EQ(agent.ended.count(id), 0u);
    watch.Add(pid);
    ASSERT_TRUE(agent.RunUntil([&] { return !found.empty(); }));
    EXPECT_THAT(found.at(pid), HasSubstr("waiting in "));
    (*file)->Release();
    EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGKILL, false}));
    EXPECT_THAT(agent.KillAll(), IsEmpty());
  }
}

TEST(UnkillableProcessTest, FindsAProcessInLongUninterruptibleSleep) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  FakeAgent agent;
  std::map<pid_t, std::string> found;
  StuckProcessMonitor watch(agent.io(), milliseconds(200),
                            [&](pid_t pid, const std::string& where) { found[pid] = where; });
  const uint64_t other = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  watch.Add(agent.started.at(other));
  const uint64_t stuck = agent.next_id++;
  agent.client().Spawn(stuck, agent.Command({"/bin/cat", (*file)->path()}));
  ASSERT_TRUE(agent.RunUntil([&] { return agent.started.count(stuck) > 0; }));
  ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
  // A process that waits for FUSE enters state D only after a fatal signal.
  kill(agent.started.at(stuck), SIGTERM);
  watch.Add(agent.started.at(stuck));
  ASSERT_TRUE(agent.RunUntil([&] { return !found.empty(); }));
  EXPECT_THAT(found, ElementsAre(testing::Pair(agent.started.at(stuck),
                                               HasSubstr("in uninterruptible sleep (state D) for 0."))));
  (*file)->Release();
  EXPECT_EQ(agent.RunToEnd(stuck), ExitInfo(Signaled{SIGTERM, false}));
}

}  // namespace
}  // namespace ddprun
