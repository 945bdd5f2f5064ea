// A warden that lives and does not answer: real processes, real signals.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/process_client.h"
#include "launcher/process/testing/fake_agent.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// More than the warden has, less than its agent's last resort.
constexpr seconds kSilence{9};

void Stop(pid_t pid) {
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
}

TEST(StuckWardenTest, AStoppedOneDelaysKillAllByItsDeadlineOnly) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  ASSERT_TRUE(agent.AwaitMarkedProcesses(3));
  Stop(agent.client().warden_pid());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, kSilence);
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(agent.ended.at(id), ExitInfo(Signaled{SIGKILL, false}));
  ASSERT_EQ(agent.lost.size(), 1u);
  EXPECT_THAT(std::string(agent.lost[0].message()), HasSubstr("has not answered for 5 s, in state T"));
  EXPECT_EQ(kill(agent.client().warden_pid(), 0), -1) << "it is gone";
}

TEST(StuckWardenTest, AStoppedOneDelaysAStartByItsDeadlineOnly) {
  FakeAgent agent;
  Stop(agent.client().warden_pid());
  const auto start = std::chrono::steady_clock::now();
  const ExitInfo exit = agent.Run(agent.Command({"/bin/true"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kSilence);
  ASSERT_TRUE(std::holds_alternative<NeverStarted>(exit)) << ToString(exit);
  EXPECT_EQ(std::get<NeverStarted>(exit).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(agent.lost.size(), 1u);
}

TEST(StuckWardenTest, AStoppedOneIsNoticedWhileWorkersRun) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  Stop(agent.client().warden_pid());
  EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(StuckWardenTest, TheDestructorDoesNotWaitForAStoppedOne) {
  FakeAgent agent;
  agent.StartAndWaitReady(kHardToKill);
  ASSERT_TRUE(agent.AwaitMarkedProcesses(3));
  const pid_t warden = agent.client().warden_pid();
  Stop(warden);
  const auto start = std::chrono::steady_clock::now();
  agent.Destroy();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(kill(warden, 0), -1);
}

// A container that is frozen and thawed, a machine that is suspended: that time is not the warden's fault.
TEST(StuckWardenTest, OneThatWasStoppedWithItsAgentIsNotSuspected) {
  Pipe told = MakePipe();
  const pid_t agent = fork();
  if (agent == 0) {
    FakeAgent fake;
    fake.StartAndWaitReady("echo ready; exec sleep 1000");
    const std::string warden = absl::StrCat(fake.client().warden_pid(), "\n");
    if (write(told.writer.get(), warden.data(), warden.size()) < 0) _exit(2);
    // Long enough for one that is suspected.
    const auto until = std::chrono::steady_clock::now() + seconds(3);
    while (std::chrono::steady_clock::now() < until) {
      fake.io().restart();
      fake.io().run_one_until(until);
    }
    raise(SIGSTOP);
    const ExitInfo exit = fake.Run(fake.Command({"/bin/true"}));
    _exit(exit == ExitInfo(Exited{0}) && fake.lost.empty() ? 0 : 3);
  }
  told.writer.Reset();
  const pid_t warden = std::atoi(ReadUntil(told.reader.get(), "\n").c_str());
  ASSERT_GT(warden, 0);
  int status = 0;
  ASSERT_EQ(waitpid(agent, &status, WUNTRACED), agent);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  ASSERT_EQ(kill(warden, SIGSTOP), 0);
  // What a warden has that runs, and more.
  poll(nullptr, 0, static_cast<int>(ToMillis(seconds(7))));
  ASSERT_EQ(kill(agent, SIGCONT), 0);
  ASSERT_EQ(kill(warden, SIGCONT), 0);
  ASSERT_EQ(waitpid(agent, &status, 0), agent);
  EXPECT_EQ(ExitInfoFromWaitStatus(status), ExitInfo(Exited{0}));
}

}  // namespace
}  // namespace ddprun
