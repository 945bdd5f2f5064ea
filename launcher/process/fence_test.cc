// Tests WardenClient::Fence with real processes, one of them an agent that is stopped by SIGSTOP.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/warden_client.h"
#include "os/boot_clock.h"

namespace ddprun {
namespace {

using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kForever[] = "echo ready; exec sleep 1000";
constexpr char kAgentMark[] = "DDPRUN_TEST_STOPPED_AGENT";

bool Cancelled(const ExitInfo& exit) {
  const auto* never = std::get_if<NeverStarted>(&exit);
  return never != nullptr && never->status.code() == absl::StatusCode::kCancelled;
}

TEST(FenceTest, CallsFencedAndKillsAllProcessesAtTheDeadline) {
  std::vector<std::string> said;
  FakeAgent agent([&](const std::string& line) { said.push_back(line); });
  agent.StartAndWaitReady(kHardToKill);
  ASSERT_TRUE(agent.AwaitMarkedProcesses(3));
  const BootTime deadline = BootClock::now() + milliseconds(30);
  agent.client().Fence(deadline);
  ASSERT_TRUE(agent.RunUntil([&] { return agent.ended.size() == 1; }));
  EXPECT_GE(BootClock::now(), deadline);
  EXPECT_THAT(said, ElementsAre("fenced\n", "ended 1: SIGKILL\n"));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(FenceTest, DoesNotFireWhenRenewed) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kForever);
  const BootTime first = BootClock::now() + milliseconds(500);
  agent.client().Fence(first);
  // Keep renewing the fence until the first deadline has passed.
  while (BootClock::now() < first + milliseconds(50)) {
    agent.client().Fence(BootClock::now() + hours(1));
    ASSERT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  }
  EXPECT_EQ(agent.times_fenced, 0);
  EXPECT_EQ(agent.ended.count(id), 0u);
}

TEST(FenceTest, DoesNotFireWhenDisarmed) {
  FakeAgent agent;
  const BootTime deadline = BootClock::now() + milliseconds(500);
  agent.client().Fence(deadline);
  agent.client().Unfence();
  const uint64_t id = agent.StartAndWaitReady(kForever);
  while (BootClock::now() < deadline + milliseconds(50)) {
    ASSERT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  }
  EXPECT_EQ(agent.times_fenced, 0);
  EXPECT_EQ(agent.ended.count(id), 0u);
}

// When a stopped agent resumes, it may still have old requests in its queue.
TEST(FenceTest, NoWorkerStartsAfterTheDeadlineUntilTheFenceIsRenewedOrDisarmed) {
  FakeAgent agent;
  const SpawnCommand command = agent.Command({"/bin/true"});
  agent.client().Fence(BootClock::now() - hours(1));
  EXPECT_PRED1(Cancelled, agent.Run(command));
  EXPECT_EQ(agent.times_fenced, 1);
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_PRED1(Cancelled, agent.Run(command)) << "no worker may start, even after the kill";
  agent.client().Fence(BootTime());  // a past deadline does not renew the fence
  EXPECT_PRED1(Cancelled, agent.Run(command));
  EXPECT_EQ(agent.times_fenced, 2) << "each deadline must be reported";
  EXPECT_THAT(agent.started, IsEmpty());

  EXPECT_THAT(agent.KillAll(), IsEmpty());
  agent.client().Fence(BootClock::now() + hours(1));
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  agent.client().Fence(BootClock::now());
  EXPECT_PRED1(Cancelled, agent.Run(command));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  agent.client().Unfence();
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
}

TEST(FenceTest, CallsFencedWithoutWorkers) {
  FakeAgent agent;
  agent.client().Fence(BootClock::now());
  EXPECT_TRUE(agent.RunUntil([&] { return agent.times_fenced == 1; }));
}

// The body of a forked process that acts as an agent. Starts three workers that are hard to kill, arms the
// fence, writes the deadline to `report`, and stops itself. After SIGCONT, requests a fourth worker. Each
// call of the handlers `ended` and `fenced` writes a line to `report`. `ready` is the workers' stdout.
[[noreturn]] void RunAgentThatStops(int ready, int report) {
  const auto write_line = [report](const std::string& line) {
    if (write(report, line.data(), line.size()) < 0) _exit(1);
  };
  FakeAgent agent(write_line);
  SpawnCommand command = agent.Shell(kHardToKill);
  command.env.emplace_back(kAgentMark, absl::StrCat(getppid()));
  command.stdout_fd = ready;
  for (uint64_t id = 1; id <= 3; ++id) agent.client().Spawn(id, command);
  agent.RunUntil([&] { return agent.started.size() == 3; });
  if (!AwaitMarked(absl::StrCat(kAgentMark, "=", getppid()), 9)) _exit(1);
  const BootTime deadline = BootClock::now() + milliseconds(100);
  agent.client().Fence(deadline);
  write_line(absl::StrCat("deadline ", deadline.time_since_epoch().count(), "\n"));
  raise(SIGSTOP);
  agent.client().Spawn(4, command);
  agent.RunUntil([&] { return agent.ended.size() == 4; });
  agent.KillAll();
  write_line("end\n");
  agent.Destroy();
  _exit(0);
}

TEST(FenceTest, KillsTheWorkersWhileTheAgentIsStopped) {
  Pipe ready = MakePipe();
  Pipe report = MakePipe();
  const pid_t agent = fork();
  if (agent == 0) RunAgentThatStops(ready.writer.get(), report.writer.get());
  report.writer.Reset();
  int status = 0;
  ASSERT_EQ(waitpid(agent, &status, WUNTRACED), agent);
  ASSERT_TRUE(WIFSTOPPED(status)) << "wait status " << status;
  const std::string mark = absl::StrCat(kAgentMark, "=", getpid());
  const std::string armed = ReadUntil(report.reader.get(), "\n");
  ASSERT_THAT(armed, HasSubstr("deadline "));
  const BootTime deadline(std::chrono::nanoseconds(std::stoll(armed.substr(sizeof "deadline"))));
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (!Marked(mark).empty() && std::chrono::steady_clock::now() < patience) sched_yield();
  const auto after = BootClock::now() - deadline;
  EXPECT_THAT(Marked(mark), IsEmpty());
  EXPECT_GE(after, milliseconds(0));
  RecordProperty("all_gone_after_deadline_us", std::to_string(after.count() / 1000));
  EXPECT_EQ(waitpid(agent, &status, WNOHANG | WUNTRACED | WCONTINUED), 0)
      << "the agent must still be stopped";

  ASSERT_EQ(kill(agent, SIGCONT), 0);
  const std::vector<std::string> lines = absl::StrSplit(ReadUntil(report.reader.get(), "end\n"), '\n');
  ASSERT_EQ(lines.size(), 7u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "fenced");
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 1, lines.begin() + 4),
              testing::UnorderedElementsAre("ended 1: SIGKILL", "ended 2: SIGKILL", "ended 3: SIGKILL"));
  EXPECT_THAT(lines[4], HasSubstr("ended 4: never started"));
  ASSERT_EQ(waitpid(agent, &status, 0), agent);
  EXPECT_EQ(ExitInfoFromWaitStatus(status), ExitInfo(Exited{0}));
}

}  // namespace
}  // namespace ddprun
