// Tests that no process is left behind, regardless of which process ends and why, with real processes and
// signals.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(ProcessKillTest, KillAllLeavesNoProcess) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  agent.StartAndWaitReady(kHardToKill);
  EXPECT_TRUE(agent.AwaitMarkedProcesses(6));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_EQ(agent.ended.at(id), ExitInfo(Signaled{SIGKILL, false})) << "`ended` must be called before `done`";
  EXPECT_EQ(agent.ended.size(), 2u);
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0})) << "a later start must succeed";
}

TEST(ProcessKillTest, KillAllFindsProcessesOfAnEndedWorker) {
  FakeAgent agent;
  EXPECT_EQ(agent.Run(agent.Shell("setsid sleep 1000 >/dev/null 2>&1 & exit 3")), ExitInfo(Exited{3}));
  EXPECT_TRUE(agent.AwaitMarkedProcesses(1));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(ProcessKillTest, KillAllCompletesWithoutWorkers) {
  FakeAgent agent;
  EXPECT_THAT(agent.KillAll(), IsEmpty());
}

TEST(ProcessKillTest, KillAllEndsAForkBomb) {
  FakeAgent agent;
  Pipe out = MakePipe();
  // Two processes keep changing their pids: each forks a copy of itself into a new session and exits. Two
  // other processes fork children into new sessions as fast as they can, and each child prints a line. All
  // processes ignore SIGTERM.
  SpawnCommand command = agent.Shell(
      "trap '' TERM\n"
      "export FLEE='setsid sh -c \"$FLEE\" &'\n"
      "sh -c \"$FLEE\"; sh -c \"$FLEE\"\n"
      "bomb() { while :; do (setsid sh -c 'echo x; exec sleep 1000' &); done; }\n"
      "bomb & bomb");
  command.stdout_fd = out.writer.get();
  agent.client().Spawn(1, command);
  ASSERT_TRUE(agent.RunUntil([&] { return agent.started.size() == 1; }));
  std::string text;
  while (text.size() < 60) {
    const std::string more = ReadUntil(out.reader.get(), "x\n");
    ASSERT_FALSE(more.empty());
    text += more;
  }
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(ProcessKillTest, NoWorkerStartsDuringKillAll) {
  FakeAgent agent;
  agent.StartAndWaitReady(kHardToKill);
  bool answered = false;
  agent.client().KillAll(kPatience, [&](const auto&) { answered = true; });
  const ExitInfo exit = agent.Run(agent.Command({"/bin/true"}));
  // The worker may start only if KillAll completed before the warden received the Spawn request.
  EXPECT_TRUE(answered || std::holds_alternative<NeverStarted>(exit)) << ToString(exit);
  EXPECT_TRUE(agent.RunUntil([&] { return answered; }));
}

TEST(ProcessKillTest, TheDestructorLeavesNoProcess) {
  FakeAgent agent;
  const pid_t warden = WardenOf(agent);
  agent.StartAndWaitReady(kHardToKill);
  agent.Destroy();
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(kill(warden, 0), -1) << "the warden must have been reaped";
}

TEST(ProcessKillTest, TheWardenHasItsOwnNameAndIgnoresSignals) {
  FakeAgent agent;
  const pid_t warden = WardenOf(agent);
  EXPECT_EQ(ReadAll(absl::StrCat("/proc/", warden, "/comm")), "ddp-warden\n");
  EXPECT_THAT(SplitNul(ReadAll(absl::StrCat("/proc/", warden, "/cmdline"))), ElementsAre("ddp-warden"));
  // Another process sends the signals, because a SIGUSR1 from the agent's process counts as kAgentDied.
  const pid_t sender = fork();
  if (sender == 0) {
    for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGALRM, SIGTSTP}) {
      kill(warden, signo);
    }
    _exit(0);
  }
  ASSERT_EQ(waitpid(sender, nullptr, 0), sender);
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
}

TEST(ProcessKillTest, AWorkerIgnoresTheSignalsOfItsCommand) {
  FakeAgent agent;
  SpawnCommand command = agent.Shell("kill -USR1 $$; kill -USR2 $$; exit 3");
  EXPECT_EQ(agent.Run(command), ExitInfo(Signaled{SIGUSR1, false}));
  command.ignored = {SIGUSR1};
  EXPECT_EQ(agent.Run(command), ExitInfo(Signaled{SIGUSR2, false}));
  command.ignored = {SIGUSR1, SIGUSR2};
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{3}));
}

TEST(ProcessKillTest, SigkillOfTheWardenKillsTheWorkersAndIsReported) {
  FakeAgent agent;
  const pid_t warden = WardenOf(agent);
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  bool answered = false;
  kill(warden, SIGKILL);
  agent.client().KillAll(kPatience, [&](const auto& left) { answered = left.empty(); });
  EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_TRUE(agent.RunUntil([&] { return answered; }));
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  ASSERT_EQ(agent.lost.size(), 1u);
  EXPECT_THAT(std::string(agent.lost[0].message()), HasSubstr("SIGKILL"));
  EXPECT_EQ(agent.ended.size(), 2u);
  const ExitInfo late = agent.Run(agent.Command({"/bin/true"}));
  ASSERT_TRUE(std::holds_alternative<NeverStarted>(late));
  EXPECT_EQ(std::get<NeverStarted>(late).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(agent.KillAll(), IsEmpty());
}

TEST(ProcessKillTest, ForeignChildrenOfTheAgentAreNotKilled) {
  Pipe hold = MakePipe();
  const pid_t foreign = fork();
  if (foreign == 0) {
    char c;
    hold.writer.Reset();
    [[maybe_unused]] const ssize_t n = read(hold.reader.get(), &c, 1);
    _exit(7);
  }
  hold.reader.Reset();
  {
    FakeAgent agent;
    const pid_t warden = WardenOf(agent);
    kill(warden, SIGKILL);
    EXPECT_TRUE(agent.RunUntil([&] { return agent.ended.size() == 1; }));
  }
  hold.writer.Reset();
  int status = 0;
  ASSERT_EQ(waitpid(foreign, &status, 0), foreign);
  EXPECT_EQ(ExitInfoFromWaitStatus(status), ExitInfo(Exited{7}));
}

// The agent runs in a forked process, which the test kills with SIGKILL. The test process is a subreaper, so
// it would inherit any process that is left behind.
TEST(ProcessKillTest, SigkillOfTheAgentLeavesNoProcess) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  Pipe ready = MakePipe();
  const std::string mark = absl::StrCat("DDPRUN_TEST_FAKE_AGENT=", getpid());
  const std::string file = testing::TempDir() + "/removed", replaced = testing::TempDir() + "/replaced";
  std::ofstream(file).close();
  std::ofstream(replaced).close();
  const pid_t fake_agent = fork();
  if (fake_agent == 0) {
    FakeAgent agent;
    for (const std::string& path : {file, replaced}) {
      agent.client().RemoveAtEnd(UniqueFd(open(path.c_str(), O_PATH | O_CLOEXEC)).get());
    }
    SpawnCommand command = agent.Shell(kHardToKill);
    command.env.emplace_back("DDPRUN_TEST_FAKE_AGENT", absl::StrCat(getppid()));
    command.stdout_fd = ready.writer.get();
    for (uint64_t id = 1; id <= 3; ++id) agent.client().Spawn(id, command);
    agent.RunUntil([] { return false; });
    _exit(1);
  }
  ready.writer.Reset();
  std::string text;
  while (std::count(text.begin(), text.end(), '\n') < 9) {
    const std::string more = ReadUntil(ready.reader.get(), "\n");
    ASSERT_FALSE(more.empty());
    text += more;
  }
  EXPECT_TRUE(AwaitMarked(mark, 9));
  const std::string newer = replaced + ".new";
  std::ofstream(newer) << "another file";
  ASSERT_EQ(rename(newer.c_str(), replaced.c_str()), 0);
  kill(fake_agent, SIGKILL);
  ASSERT_EQ(waitpid(fake_agent, nullptr, 0), fake_agent);
  // The warden is now our child. It exits only after all its descendants have ended.
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_ALL, 0, &info, WEXITED), 0);
  EXPECT_THAT(Marked(mark), IsEmpty());
  EXPECT_EQ(info.si_code, CLD_EXITED);
  EXPECT_EQ(info.si_status, 0);
  EXPECT_EQ(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1) << "another process was left behind";
  EXPECT_NE(access(file.c_str(), F_OK), 0);
  EXPECT_EQ(ReadAll(replaced), "another file");
}

TEST(ProcessKillTest, AnAgentThatReadsLateLosesNoEvents) {
  FakeAgent agent;
  constexpr uint64_t kMany = 400;  // causes more events than the socket can hold
  Pipe hold = MakePipe();
  Pipe alive = MakePipe();
  SpawnCommand command = agent.Command({"/bin/cat"});
  command.stdin_fd = hold.reader.get();
  command.stdout_fd = alive.writer.get();
  for (uint64_t id = 1; id <= kMany; ++id) agent.client().Spawn(id, command);
  ASSERT_TRUE(agent.RunUntil([&] { return agent.started.size() == kMany; }))
      << "only " << agent.started.size() << " workers have started";
  alive.writer.Reset();
  hold.writer.Reset();
  EXPECT_EQ(ReadUntil(alive.reader.get(), "all have ended"), "");
  EXPECT_THAT(agent.ended, IsEmpty()) << "the agent must not have read any events yet";
  ASSERT_TRUE(agent.RunUntil([&] { return agent.ended.size() == kMany; }))
      << "only " << agent.ended.size() << " workers have ended";
  for (const auto& [id, exit] : agent.ended) EXPECT_EQ(exit, ExitInfo(Exited{0}));
}

}  // namespace
}  // namespace ddprun
