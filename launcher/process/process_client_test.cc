// Real processes, real signals. Each test's workers carry a mark in their environment, by which everything
// that they start is found in /proc, independently of the code under test.
#include "launcher/process/process_client.h"

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

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr seconds kPatience{20};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> SplitNul(const std::string& text) {
  return absl::StrSplit(text, '\0', absl::SkipEmpty());
}

// Live processes with `mark` in their environment.
std::vector<pid_t> Marked(const std::string& mark) {
  std::vector<pid_t> found;
  DIR* dir = opendir("/proc");
  while (const dirent* entry = readdir(dir)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    for (const std::string& var : SplitNul(ReadAll(absl::StrCat("/proc/", pid, "/environ")))) {
      if (var == mark) found.push_back(pid);
    }
  }
  closedir(dir);
  return found;
}

// Reads `fd` until `what` has come, for at most kPatience.
std::string ReadUntil(int fd, absl::string_view what) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (text.find(std::string(what)) == std::string::npos) {
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    const auto left = deadline - std::chrono::steady_clock::now();
    char buffer[4096];
    if (poll(&ready, 1, std::max<int>(0, ToMillis(left))) <= 0) break;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, n);
  }
  return text;
}

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Pipe MakePipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// An agent with its warden, in this process.
class Agent {
 public:
  Agent() { client_.emplace(io_, StartWarden(), Handlers()); }

  ProcessClient& client() { return *client_; }

  SpawnCommand Command(std::vector<std::string> argv) {
    return {.argv = std::move(argv),
            .env = {{"PATH", "/usr/bin:/bin"}, {"DDPRUN_TEST_MARK", mark_}},
            .cwd = "/",
            .stdin_fd = null_.get(),
            .stdout_fd = null_.get(),
            .stderr_fd = 2};
  }
  SpawnCommand Shell(std::string script) { return Command({"/bin/sh", "-c", std::move(script)}); }

  // True when `done` became true in time.
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  ExitInfo RunToEnd(uint64_t id) {
    EXPECT_TRUE(RunUntil([&] { return ended.count(id) > 0; })) << "worker " << id;
    return ended.count(id) > 0 ? ended.at(id) : NeverStarted{absl::DeadlineExceededError("test")};
  }
  ExitInfo Run(const SpawnCommand& command) {
    const uint64_t id = next_id++;
    client().Spawn(id, command);
    return RunToEnd(id);
  }
  // Spawns `script`, which must print a line "ready", and waits for that.
  uint64_t StartAndWaitReady(const std::string& script) {
    Pipe out = MakePipe();
    SpawnCommand command = Shell(script);
    command.stdout_fd = out.writer.get();
    const uint64_t id = next_id++;
    client().Spawn(id, command);
    EXPECT_TRUE(RunUntil([&] { return started.count(id) > 0; }));
    out.writer.Reset();
    EXPECT_THAT(ReadUntil(out.reader.get(), "ready\n"), HasSubstr("ready\n"));
    return id;
  }
  std::vector<LeftOver> KillAll(Duration limit = kPatience) {
    std::optional<std::vector<LeftOver>> answer;
    client().KillAll(limit, [&](const std::vector<LeftOver>& left) { answer = left; });
    EXPECT_TRUE(RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(std::vector<LeftOver>(1));
  }
  void Destroy() { client_.reset(); }
  std::vector<pid_t> MarkedProcesses() const { return Marked("DDPRUN_TEST_MARK=" + mark_); }

  std::map<uint64_t, pid_t> started;
  std::map<uint64_t, ExitInfo> ended;
  std::map<uint64_t, ResourceUse> use;
  std::vector<absl::Status> lost;
  uint64_t next_id = 1;

 private:
  ProcessClient::Handlers Handlers() {
    return {.started =
                [this](uint64_t id, pid_t pid) {
                  EXPECT_EQ(started.count(id) + ended.count(id), 0u);
                  started[id] = pid;
                },
            .ended =
                [this](uint64_t id, const ExitInfo& exit, const ResourceUse& used) {
                  EXPECT_EQ(ended.count(id), 0u) << "worker " << id << " ended twice";
                  ended.emplace(id, exit);
                  use[id] = used;
                },
            .warden_lost = [this](const absl::Status& why) { lost.push_back(why); }};
  }

  static inline int instances_ = 0;
  const std::string mark_ = absl::StrCat(getpid(), "-", ++instances_);
  const UniqueFd null_{open("/dev/null", O_RDWR | O_CLOEXEC)};
  boost::asio::io_context io_;
  std::optional<ProcessClient> client_;
};

// The pid of this agent's warden: the parent of its workers.
pid_t WardenOf(Agent& agent) {
  const uint64_t id = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  const std::string stat = ReadAll(absl::StrCat("/proc/", agent.started.at(id), "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')')), ' ');
  return std::atoi(fields[2].c_str());
}

// Starts one that SIGTERM does not end, one that left its session and was orphaned, one that did both.
constexpr char kHardToKill[] =
    "trap '' TERM HUP INT\n"
    "(setsid sh -c 'trap \"\" TERM HUP; echo one; while :; do sleep 1000; done' &)\n"
    "(sh -c 'setsid sleep 1001 & echo two' &)\n"
    "sleep 1002 &\n"
    "echo ready\n"
    "while :; do sleep 1003; done";

TEST(ProcessClientTest, ExitCodesAreExact) {
  Agent agent;
  for (const int code : {0, 1, 2, 127, 255}) {
    EXPECT_EQ(agent.Run(agent.Shell(absl::StrCat("exit ", code))), ExitInfo(Exited{code}));
  }
}

TEST(ProcessClientTest, SignalsAreExact) {
  Agent agent;
  for (const int signo : {SIGKILL, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGRTMIN + 1}) {
    const ExitInfo exit = agent.Run(agent.Shell(absl::StrCat("kill -", signo, " $$")));
    ASSERT_TRUE(std::holds_alternative<Signaled>(exit)) << ToString(exit);
    EXPECT_EQ(std::get<Signaled>(exit).signo, signo);
    EXPECT_FALSE(std::get<Signaled>(exit).core_dumped);
  }
}

TEST(ProcessClientTest, ACoreIsSeen) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/core");
  mkdir(dir.c_str(), 0700);
  Agent agent;
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

TEST(ProcessClientTest, WhatCannotBeStartedSaysWhatToDo) {
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
  Agent agent;
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

TEST(ProcessClientTest, ABadDirectoryOrNulByteIsNamed) {
  Agent agent;
  SpawnCommand lost = agent.Command({"/bin/true"});
  lost.cwd = "/no/such/dir";
  EXPECT_THAT(ToString(agent.Run(lost)), HasSubstr("working directory /no/such/dir"));
  EXPECT_THAT(ToString(agent.Run(agent.Command({"/bin/echo", std::string("a\0b", 3)}))), HasSubstr("NUL"));
  EXPECT_THAT(ToString(agent.Run(agent.Command({}))), HasSubstr("no program"));
}

TEST(ProcessClientTest, ArgumentsEnvironmentAndDirectoryAreExact) {
  Agent agent;
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

TEST(ProcessClientTest, ALargeEnvironmentArrives) {
  Agent agent;
  SpawnCommand command = agent.Shell("test ${#V0} -eq 100000 && test ${#V9} -eq 100000");
  for (int i = 0; i < 10; ++i) command.env.emplace_back(absl::StrCat("V", i), std::string(100'000, 'x'));
  EXPECT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  command.env.emplace_back("TOO_LARGE", std::string(1 << 20, 'x'));
  EXPECT_THAT(ToString(agent.Run(command)), HasSubstr("larger than the system takes"));
}

TEST(ProcessClientTest, OnlyTheThreeStandardDescriptorsAreOpen) {
  const int leak = open("/dev/null", O_RDONLY);  // without CLOEXEC, and before the warden
  Agent agent;
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

TEST(ProcessClientTest, AWorkerHasItsOwnSessionAndDefaultSignals) {
  signal(SIGPIPE, SIG_IGN);  // as an agent may have it
  Agent agent;
  signal(SIGPIPE, SIG_DFL);
  Pipe out = MakePipe();
  SpawnCommand command = agent.Command({"/bin/cat", "/proc/self/stat", "/proc/self/status"});
  command.stdout_fd = out.writer.get();
  ASSERT_EQ(agent.Run(command), ExitInfo(Exited{0}));
  out.writer.Reset();
  const std::string text = ReadUntil(out.reader.get(), "no such text");
  const std::string pid = absl::StrCat(agent.started.at(1));
  const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind("(cat) ")), ' ');
  EXPECT_EQ(fields[3], pid) << "process group";
  EXPECT_EQ(fields[4], pid) << "session";
  EXPECT_THAT(text, HasSubstr("SigBlk:\t0000000000000000"));
  // The two below SIGRTMIN are the C library's own and stay as they came.
  const uint64_t own = (uint64_t{1} << (SIGRTMIN - 2)) | (uint64_t{1} << (SIGRTMIN - 3));
  const size_t ignored = text.find("SigIgn:\t") + 8;
  EXPECT_EQ(std::strtoull(text.c_str() + ignored, nullptr, 16) & ~own, 0u);
}

TEST(ProcessClientTest, ProcessorsCanBeChosen) {
  Agent agent;
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

TEST(ProcessClientTest, ASignalReachesTheWholeGroup) {
  Agent agent;
  const uint64_t id = agent.StartAndWaitReady("sleep 1000 & echo ready; wait; exit 5");
  const uint64_t other = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  EXPECT_EQ(agent.MarkedProcesses().size(), 3u);
  agent.client().Signal(id, SIGTERM);
  EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGTERM, false}));
  EXPECT_EQ(agent.ended.count(other), 0u);
  agent.client().SignalAll(SIGINT);
  EXPECT_EQ(agent.RunToEnd(other), ExitInfo(Signaled{SIGINT, false}));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(ProcessClientTest, KillAllLeavesNobody) {
  Agent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  agent.StartAndWaitReady(kHardToKill);
  EXPECT_GE(agent.MarkedProcesses().size(), 6u);
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_EQ(agent.ended.at(id), ExitInfo(Signaled{SIGKILL, false})) << "told before the answer";
  EXPECT_EQ(agent.ended.size(), 2u);
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0})) << "and goes on";
}

TEST(ProcessClientTest, KillAllFindsWhatAnEndedWorkerLeftBehind) {
  Agent agent;
  EXPECT_EQ(agent.Run(agent.Shell("setsid sleep 1000 >/dev/null 2>&1 & exit 3")), ExitInfo(Exited{3}));
  EXPECT_EQ(agent.MarkedProcesses().size(), 1u);
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(ProcessClientTest, KillAllWithNobodyThereAnswers) {
  Agent agent;
  EXPECT_THAT(agent.KillAll(), IsEmpty());
}

TEST(ProcessClientTest, KillAllEndsAForkBomb) {
  Agent agent;
  Pipe out = MakePipe();
  // Two that flee: each forks its successor into a new session and ends. Two that fork as fast as they can
  // into sessions of their own, deaf to SIGTERM, each of which says so.
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

TEST(ProcessClientTest, NothingStartsWhileAllIsKilled) {
  Agent agent;
  agent.StartAndWaitReady(kHardToKill);
  bool answered = false;
  agent.client().KillAll(kPatience, [&](const auto&) { answered = true; });
  const ExitInfo exit = agent.Run(agent.Command({"/bin/true"}));
  // The killing may already have been over when the second request came.
  EXPECT_TRUE(answered || std::holds_alternative<NeverStarted>(exit)) << ToString(exit);
  EXPECT_TRUE(agent.RunUntil([&] { return answered; }));
}

TEST(ProcessClientTest, ManyShortProcesses) {
  Agent agent;
  constexpr uint64_t kMany = 200;
  for (uint64_t id = 0; id < kMany; ++id) {
    agent.client().Spawn(id, agent.Shell(absl::StrCat("exit ", id % 50)));
  }
  ASSERT_TRUE(agent.RunUntil([&] { return agent.ended.size() == kMany; })) << agent.ended.size();
  for (uint64_t id = 0; id < kMany; ++id) {
    EXPECT_EQ(agent.ended.at(id), ExitInfo(Exited{static_cast<int>(id % 50)}));
    EXPECT_EQ(agent.started.count(id), 1u);
  }
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(ProcessClientTest, ResourcesUsedAreTold) {
  Agent agent;
  EXPECT_EQ(agent.Run(agent.Shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")), ExitInfo(Exited{0}));
  EXPECT_GT(agent.use.at(1).user + agent.use.at(1).system, milliseconds(1));
  EXPECT_GT(agent.use.at(1).max_rss_bytes, 100'000);
}

TEST(ProcessClientTest, TheDestructorLeavesNobody) {
  Agent agent;
  const pid_t warden = WardenOf(agent);
  agent.StartAndWaitReady(kHardToKill);
  agent.Destroy();
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(kill(warden, 0), -1) << "no warden, not even a zombie";
}

TEST(ProcessClientTest, TheWardenShowsItsOwnNameAndHeedsNoSignal) {
  Agent agent;
  const pid_t warden = WardenOf(agent);
  EXPECT_EQ(ReadAll(absl::StrCat("/proc/", warden, "/comm")), "ddp-warden\n");
  EXPECT_THAT(SplitNul(ReadAll(absl::StrCat("/proc/", warden, "/cmdline"))), ElementsAre("ddp-warden"));
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGALRM, SIGTSTP}) {
    kill(warden, signo);
  }
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
}

TEST(ProcessClientTest, SigkillOfTheWardenEndsTheWorkersAndIsTold) {
  Agent agent;
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

TEST(ProcessClientTest, ForeignChildrenOfTheAgentAreLeftAlone) {
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
    Agent agent;
    const pid_t warden = WardenOf(agent);
    kill(warden, SIGKILL);
    EXPECT_TRUE(agent.RunUntil([&] { return agent.ended.size() == 1; }));
  }
  hold.writer.Reset();
  int status = 0;
  ASSERT_EQ(waitpid(foreign, &status, 0), foreign);
  EXPECT_EQ(ExitInfoFromWaitStatus(status), ExitInfo(Exited{7}));
}

// The agent is another process here, ended by SIGKILL; this process, a subreaper, would get what remains.
TEST(ProcessClientTest, SigkillOfTheAgentLeavesNobody) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  Pipe ready = MakePipe();
  const std::string mark = absl::StrCat("DDPRUN_TEST_FAKE_AGENT=", getpid());
  const pid_t fake_agent = fork();
  if (fake_agent == 0) {
    Agent agent;
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
  EXPECT_GE(Marked(mark).size(), 9u);
  kill(fake_agent, SIGKILL);
  ASSERT_EQ(waitpid(fake_agent, nullptr, 0), fake_agent);
  // The warden, now our child, ends by itself, and only after all the others.
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_ALL, 0, &info, WEXITED), 0);
  EXPECT_THAT(Marked(mark), IsEmpty());
  EXPECT_EQ(info.si_code, CLD_EXITED);
  EXPECT_EQ(info.si_status, 0);
  EXPECT_EQ(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1) << "somebody else was left";
}

TEST(ProcessClientTest, AnAgentThatDoesNotReadLosesNothing) {
  Agent agent;
  constexpr uint64_t kMany = 400;  // the socket takes fewer events than that
  Pipe hold = MakePipe();
  Pipe alive = MakePipe();
  SpawnCommand command = agent.Command({"/bin/cat"});
  command.stdin_fd = hold.reader.get();
  command.stdout_fd = alive.writer.get();
  for (uint64_t id = 1; id <= kMany; ++id) agent.client().Spawn(id, command);
  ASSERT_TRUE(agent.RunUntil([&] { return agent.started.size() == kMany; })) << agent.started.size();
  alive.writer.Reset();
  hold.writer.Reset();
  EXPECT_EQ(ReadUntil(alive.reader.get(), "all have ended"), "");
  EXPECT_THAT(agent.ended, IsEmpty()) << "nothing was read meanwhile";
  ASSERT_TRUE(agent.RunUntil([&] { return agent.ended.size() == kMany; })) << agent.ended.size();
  for (const auto& [id, exit] : agent.ended) EXPECT_EQ(exit, ExitInfo(Exited{0}));
}

}  // namespace
}  // namespace ddprun
