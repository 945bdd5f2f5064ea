// Tests how workers start and end, with real processes and signals.

#include "launcher/process/warden_client.h"

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

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(WardenClientTest, ReportsExactExitCodes) {
  FakeAgent agent;
  for (const int code : {0, 1, 2, 127, 255}) {
    EXPECT_EQ(agent.Run(agent.Shell(absl::StrCat("exit ", code))), ExitInfo(Exited{code}));
  }
}

TEST(WardenClientTest, ReportsTheSignalThatEndedAWorker) {
  FakeAgent agent;
  for (const int signo : {SIGKILL, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGRTMIN + 1}) {
    const ExitInfo exit = agent.Run(agent.Shell(absl::StrCat("kill -", signo, " $$")));
    ASSERT_TRUE(std::holds_alternative<Signaled>(exit)) << ToString(exit);
    EXPECT_EQ(std::get<Signaled>(exit).signo, signo);
    EXPECT_FALSE(std::get<Signaled>(exit).core_dumped);
  }
}

TEST(WardenClientTest, ReportsACoreDump) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/core");
  mkdir(dir.c_str(), 0700);
  FakeAgent agent;
  const auto crash = [&](const char* limit) {
    SpawnCommand command = agent.Shell(absl::StrCat("ulimit -c ", limit, " && kill -SEGV $$"));
    command.cwd = dir;
    return agent.Run(command);
  };
  EXPECT_EQ(crash("0"), ExitInfo(Signaled{SIGSEGV, false}));
  rlimit limit;
  getrlimit(RLIMIT_CORE, &limit);
  const std::string pattern = ReadAll("/proc/sys/kernel/core_pattern");
  if (limit.rlim_max == 0 || pattern.empty() || pattern[0] == '|' || pattern[0] == '/') {
    GTEST_SKIP() << "this system writes no core into the working directory";
  }
  EXPECT_EQ(crash("unlimited"), ExitInfo(Signaled{SIGSEGV, true}));
}

TEST(WardenClientTest, ArgvZeroMayDifferFromTheProgramFile) {
  FakeAgent agent;
  SpawnCommand command = agent.Command({"me", "-c", "test \"$0\" = me"});
  command.file = "/bin/sh";
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  command.file = "/no/such/file";
  EXPECT_THAT(ToString(agent.Run(command)), HasSubstr("/no/such/file"));
}

TEST(WardenClientTest, AFailedStartReportsCauseAndRemedy) {
  const std::string dir = testing::TempDir();
  const auto write = [&](const char* name, absl::string_view text, int mode) {
    const std::string path = absl::StrCat(dir, "/", name);
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  };
  const struct {
    std::string program;
    absl::StatusCode code;
    std::string words;
  } kCases[] = {
      {"/no/such/program", absl::StatusCode::kNotFound, "no such file"},
      {write("noexec", "#!/bin/sh\n", 0644), absl::StatusCode::kPermissionDenied, "is it executable?"},
      {"/", absl::StatusCode::kPermissionDenied, "directory"},
      {write("garbage", "\x01\x02\x03", 0755), absl::StatusCode::kInvalidArgument, "exec format error"},
      {write("nointerp", "#!/no/such/interpreter\n", 0755), absl::StatusCode::kNotFound, "interpreter"},
  };
  FakeAgent agent;
  for (const auto& c : kCases) {
    const ExitInfo exit = agent.Run(agent.Command({c.program}));
    ASSERT_TRUE(std::holds_alternative<NeverStarted>(exit)) << c.program << ": " << ToString(exit);
    const absl::Status& status = std::get<NeverStarted>(exit).status;
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.program));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.words));
  }
  EXPECT_THAT(agent.started, IsEmpty());
}

TEST(WardenClientTest, ReportsABadDirectoryOrANulByte) {
  FakeAgent agent;
  SpawnCommand command = agent.Command({"/bin/true"});
  command.cwd = "/no/such/dir";
  EXPECT_THAT(ToString(agent.Run(command)), HasSubstr("working directory /no/such/dir"));
  EXPECT_THAT(ToString(agent.Run(agent.Command({"/bin/echo", std::string("a\0b", 3)}))), HasSubstr("NUL"));
  EXPECT_THAT(ToString(agent.Run(agent.Command({}))), HasSubstr("no program"));
}

TEST(WardenClientTest, PassesArgumentsEnvironmentAndDirectoryUnchanged) {
  FakeAgent agent;
  Pipe out = MakePipe();
  SpawnCommand command =
      agent.Command({"/bin/sh", "-c", "cat /proc/$$/cmdline /proc/$$/environ; pwd -P", "a b", "", "last"});
  command.env = {{"ONE", "1"}, {"EMPTY", ""}, {"TEXT", "a=b\nc"}};
  command.cwd = "/usr";
  command.stdout_fd = out.writer.get();
  ASSERT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  out.writer.Reset();
  std::string want;
  for (const std::string& arg : command.argv) want += arg + '\0';
  EXPECT_EQ(ReadUntil(out.reader.get(), "/usr\n"),
            want + "ONE=1" + '\0' + "EMPTY=" + '\0' + "TEXT=a=b\nc" + '\0' + "/usr\n");
}

TEST(WardenClientTest, PassesALargeEnvironment) {
  FakeAgent agent;
  SpawnCommand command = agent.Shell("test ${#V0} -eq 100000 && test ${#V9} -eq 100000");
  for (int i = 0; i < 10; ++i) command.env.emplace_back(absl::StrCat("V", i), std::string(100'000, 'x'));
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  command.env.emplace_back("TOO_LARGE", std::string(1 << 20, 'x'));
  EXPECT_THAT(ToString(agent.Run(command)), HasSubstr("exceed the system's size limit"));
}

TEST(WardenClientTest, OnlyTheThreeStandardDescriptorsAreOpen) {
  const int leak = open("/dev/null", O_RDONLY);  // without CLOEXEC, opened before the warden starts
  FakeAgent agent;
  const int leak_after = open("/dev/null", O_RDONLY);
  const uint64_t id = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  std::set<std::string> fds;
  DIR* dir = opendir(absl::StrCat("/proc/", agent.started.at(id), "/fd").c_str());
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') fds.insert(entry->d_name);
  }
  closedir(dir);
  EXPECT_THAT(fds, UnorderedElementsAre("0", "1", "2"));
  close(leak);
  close(leak_after);
}

TEST(WardenClientTest, AWorkerHasItsOwnSessionAndDefaultSignals) {
  signal(SIGPIPE, SIG_IGN);  // the warden inherits this disposition; its workers must not
  FakeAgent agent;
  signal(SIGPIPE, SIG_DFL);
  Pipe out = MakePipe();
  SpawnCommand command = agent.Command({"/bin/cat", "/proc/self/stat", "/proc/self/status"});
  command.stdout_fd = out.writer.get();
  ASSERT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  out.writer.Reset();
  const std::string text = ReadUntil(out.reader.get(), "no such text");
  const std::string pid = absl::StrCat(agent.started.at(1));
  const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind("(cat) ")), ' ');
  EXPECT_EQ(fields[3], pid) << "the worker must lead its process group";
  EXPECT_EQ(fields[4], pid) << "the worker must lead its session";
  EXPECT_THAT(text, HasSubstr("SigBlk:\t0000000000000000"));
  // The two signals below SIGRTMIN are reserved by the C library and are not reset.
  const uint64_t own = (uint64_t{1} << (SIGRTMIN - 2)) | (uint64_t{1} << (SIGRTMIN - 3));
  const size_t ignored = text.find("SigIgn:\t") + 8;
  EXPECT_EQ(std::strtoull(text.c_str() + ignored, nullptr, 16) & ~own, 0u);
}

TEST(WardenClientTest, RunsAWorkerOnlyOnTheRequestedProcessors) {
  FakeAgent agent;
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  SpawnCommand command = agent.Shell("test \"$(nproc)\" = 1");
  command.cpus = {cpu};
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  command.cpus = {CPU_SETSIZE - 1};
  EXPECT_THAT(ToString(agent.Run(command)), HasSubstr("processors"));
}

TEST(WardenClientTest, ASignalReachesTheWholeProcessGroup) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady("sleep 1000 & echo ready; wait; exit 5");
  const uint64_t other = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  EXPECT_TRUE(agent.AwaitMarkedProcesses(3));
  agent.client().Signal(id, SIGTERM);
  EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGTERM, false}));
  EXPECT_EQ(agent.ended.count(other), 0u);
  agent.client().SignalAll(SIGINT);
  EXPECT_EQ(agent.RunToEnd(other), ExitInfo(Signaled{SIGINT, false}));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(WardenClientTest, RunsManyShortProcesses) {
  FakeAgent agent;
  constexpr uint64_t kMany = 200;
  for (uint64_t id = 0; id < kMany; ++id) {
    agent.client().Spawn(id, agent.Shell(absl::StrCat("exit ", id % 50)));
  }
  ASSERT_TRUE(agent.RunUntil([&] { return agent.ended.size() == kMany; }))
      << "only " << agent.ended.size() << " workers have ended";
  for (uint64_t id = 0; id < kMany; ++id) {
    EXPECT_EQ(agent.ended.at(id), ExitInfo(Exited{static_cast<int>(id % 50)}));
    EXPECT_EQ(agent.started.count(id), 1u);
  }
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(WardenClientTest, ReportsResourceUse) {
  FakeAgent agent;
  EXPECT_EQ(agent.Run(agent.Shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")), ExitInfo(Exited{0}));
  EXPECT_GT(agent.use.at(1).user + agent.use.at(1).system, milliseconds(1));
  EXPECT_GT(agent.use.at(1).max_rss_bytes, 100'000);
}

// Waits until the process `pid` is a zombie: it has ended but has not been reaped.
void AwaitZombie(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::string stat = ReadAll(absl::StrCat("/proc/", pid, "/stat"));
    if (stat.find(") Z ") != std::string::npos) return;
    sched_yield();
  }
  FAIL() << "process " << pid << " has not ended";
}

TEST(WardenClientTest, ReportsWorkersInTheOrderInWhichTheyEnded) {
  FakeAgent agent;
  const pid_t warden = WardenOf(agent);
  // The worker that is started first ends last. The warden is stopped, so it detects both ends together.
  Pipe gate = MakePipe();
  SpawnCommand follower = agent.Command({"/bin/cat"});
  follower.stdin_fd = gate.reader.get();
  const uint64_t follower_id = agent.next_id++;
  const uint64_t first_id = agent.next_id++;
  agent.client().Spawn(follower_id, follower);
  agent.client().Spawn(first_id, agent.Command({"/bin/sleep", "1000"}));
  ASSERT_TRUE(
      agent.RunUntil([&] { return agent.started.count(follower_id) + agent.started.count(first_id) == 2; }));
  ASSERT_EQ(kill(warden, SIGSTOP), 0);
  ASSERT_EQ(kill(agent.started.at(first_id), SIGKILL), 0);
  AwaitZombie(agent.started.at(first_id));
  gate.writer.Reset();
  AwaitZombie(agent.started.at(follower_id));
  ASSERT_EQ(kill(warden, SIGCONT), 0);
  ASSERT_TRUE(
      agent.RunUntil([&] { return agent.ended.count(follower_id) + agent.ended.count(first_id) == 2; }));
  EXPECT_THAT(agent.order, ElementsAre(first_id, follower_id));
}

}  // namespace
}  // namespace ddprun
