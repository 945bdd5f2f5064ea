// Tests WardenClient::LastWords: the words that the warden writes after its agent has died. Uses real
// processes, sockets and signals.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using SayAt = WardenClient::SayAt;
using ::testing::IsEmpty;

constexpr char kAgentMark[] = "DDPRUN_TEST_DYING_AGENT";
constexpr char kWords[] = "nothing is left of node 7\n";

// A TCP connection over loopback.
struct Line {
  UniqueFd ours;    // the coordinator's end
  UniqueFd theirs;  // the agent's end
};

Line MakeLine() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), any, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), any, &size), 0);
  Line line;
  line.theirs.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(line.theirs.get(), any, size), 0);
  line.ours.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return line;
}

// Reads to the end of the stream; returns "no end: ..." if the stream does not end within kPatience.
std::string ReadToEnd(int fd) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    const auto left = deadline - std::chrono::steady_clock::now();
    char buffer[4096];
    if (poll(&ready, 1, std::max<int>(0, ToMillis(left))) <= 0) return "no end: " + text;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) return text;
    text.append(buffer, n);
  }
}

// An agent in a forked process. The process runs `body`, reports the pid of its warden, and waits to be
// killed.
class DyingAgent {
 public:
  // Waits until `body` has returned, unless `body_returns` is false.
  explicit DyingAgent(const std::function<void(FakeAgent&)>& body, bool body_returns = true) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // When the agent dies, the warden becomes a child of this process.
    Pipe ready = MakePipe();
    pid_ = fork();
    if (pid_ == 0) {
      FakeAgent agent;
      body(agent);
      // When this command has run, the warden has handled all earlier requests.
      agent.Run(agent.Command({"/bin/true"}));
      const std::string warden = absl::StrCat(agent.client().warden_pid(), "\n");
      if (write(ready.writer.get(), warden.data(), warden.size()) < 0) _exit(1);
      for (;;) pause();
    }
    ready.writer.Reset();
    if (!body_returns) return;
    warden_ = std::atoi(ReadUntil(ready.reader.get(), "\n").c_str());
    EXPECT_GT(warden_, 0) << "the agent has not become ready";
  }
  ~DyingAgent() { Kill(); }

  pid_t warden() const { return warden_; }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Kills the agent, waits until its warden has exited, and returns how the warden exited.
  ExitInfo KillAndAwaitWarden() {
    Kill();
    int status = 0;
    EXPECT_EQ(waitpid(warden_, &status, 0), warden_);
    return ExitInfoFromWaitStatus(status);
  }

 private:
  pid_t pid_ = -1;
  pid_t warden_ = 0;
};

void SpawnMarked(FakeAgent& agent) {
  SpawnCommand command = agent.Shell(kHardToKill);
  command.env.emplace_back(kAgentMark, absl::StrCat(getppid()));
  agent.client().Spawn(agent.next_id++, command);
  if (!AwaitMarked(absl::StrCat(kAgentMark, "=", getppid()), 3)) _exit(1);
}

TEST(LastWordsTest, AreWrittenWhenTheAgentIsKilledAndNoProcessIsLeft) {
  Line line = MakeLine();
  DyingAgent agent([&](FakeAgent& fake) {
    SpawnMarked(fake);
    SpawnMarked(fake);
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok());
  });
  line.theirs.Reset();
  // The agent does not read this data. The unread data must not prevent the words from arriving.
  ASSERT_EQ(write(line.ours.get(), "ignored", 7), 7);
  const std::string mark = absl::StrCat(kAgentMark, "=", getpid());
  ASSERT_GE(Marked(mark).size(), 6u);
  pollfd ready = {.fd = line.ours.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0) << "the warden wrote while the agent was alive";
  agent.Kill();
  EXPECT_EQ(ReadUntil(line.ours.get(), "\n"), kWords);
  EXPECT_THAT(Marked(mark), IsEmpty());
  EXPECT_EQ(ReadToEnd(line.ours.get()), "");
  line.ours.Reset();
  EXPECT_EQ(agent.KillAndAwaitWarden(), ExitInfo(Exited{0}));
}

TEST(LastWordsTest, AreWrittenWithoutWorkers) {
  Line line = MakeLine();
  DyingAgent agent(
      [&](FakeAgent& fake) { EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok()); });
  line.theirs.Reset();
  agent.Kill();
  EXPECT_EQ(ReadToEnd(line.ours.get()), kWords);
}

TEST(LastWordsTest, OnlyTheNewestAreWrittenAndOlderSocketsAreClosed) {
  Line older = MakeLine(), line = MakeLine();
  DyingAgent agent([&](FakeAgent& fake) {
    EXPECT_TRUE(fake.client().LastWords(older.theirs.get(), "old").ok());
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), "older").ok());
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok());
    older.theirs.Reset();
  });
  older.theirs.Reset();
  line.theirs.Reset();
  EXPECT_EQ(ReadToEnd(older.ours.get()), "") << "the older socket must be closed while the agent is alive";
  agent.Kill();
  EXPECT_EQ(ReadToEnd(line.ours.get()), kWords);
}

TEST(LastWordsTest, AreNotWrittenAfterDropLastWords) {
  Line line = MakeLine();
  DyingAgent agent([&](FakeAgent& fake) {
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok());
    fake.client().DropLastWords();
    line.theirs.Reset();
  });
  line.theirs.Reset();
  EXPECT_EQ(ReadToEnd(line.ours.get()), "") << "the socket must be closed while the agent is alive";
  EXPECT_EQ(agent.KillAndAwaitWarden(), ExitInfo(Exited{0}));
}

// The warden may receive kAgentDied before it reads the agent's last requests.
TEST(LastWordsTest, AreNotWrittenIfDroppedRightBeforeTheAgentDies) {
  Line line = MakeLine();
  pid_t warden = 0;
  Pipe dropped = MakePipe();
  {
    DyingAgent agent(
        [&](FakeAgent& fake) {
          EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok());
          EXPECT_EQ(fake.Run(fake.Command({"/bin/true"})), ExitInfo(Exited{0}));
          const pid_t stopped = fake.client().warden_pid();
          kill(stopped, SIGSTOP);
          fake.client().DropLastWords();
          const std::string pid = absl::StrCat(stopped, "\n");
          if (write(dropped.writer.get(), pid.data(), pid.size()) < 0) _exit(1);
          for (;;) pause();
        },
        /*body_returns=*/false);
    line.theirs.Reset();
    dropped.writer.Reset();
    warden = std::atoi(ReadUntil(dropped.reader.get(), "\n").c_str());
    ASSERT_GT(warden, 0);
  }
  ASSERT_EQ(kill(warden, SIGCONT), 0);
  EXPECT_EQ(ReadToEnd(line.ours.get()), "");
  EXPECT_EQ(waitpid(warden, nullptr, 0), warden);
}

TEST(LastWordsTest, AreWrittenAtANormalExitOnlyIfRequested) {
  for (const SayAt when : {SayAt::kDeathOnly, SayAt::kAnyEnd}) {
    Line line = MakeLine();
    FakeAgent agent;
    agent.StartAndWaitReady(kHardToKill);
    EXPECT_TRUE(agent.client().LastWords(line.theirs.get(), kWords, when).ok());
    line.theirs.Reset();
    agent.Destroy();
    EXPECT_EQ(ReadToEnd(line.ours.get()), when == SayAt::kAnyEnd ? kWords : "");
  }
}

// The agent discards the words by shutting down their socket, because a stopped warden handles no requests.
TEST(LastWordsTest, AreNotWrittenByAStoppedWardenWhenTheAgentExitsNormally) {
  Line line = MakeLine();
  FakeAgent agent;
  EXPECT_TRUE(agent.client().LastWords(line.theirs.get(), kWords).ok());
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  line.theirs.Reset();
  ASSERT_EQ(kill(agent.client().warden_pid(), SIGSTOP), 0);
  agent.Destroy();
  EXPECT_EQ(ReadToEnd(line.ours.get()), "");
}

TEST(LastWordsTest, AreNotWrittenByAKilledWarden) {
  Line line = MakeLine();
  FakeAgent agent;
  agent.StartAndWaitReady(kHardToKill);
  EXPECT_TRUE(agent.client().LastWords(line.theirs.get(), kWords, SayAt::kAnyEnd).ok());
  line.theirs.Reset();
  EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
  ASSERT_EQ(kill(agent.client().warden_pid(), SIGKILL), 0);
  ASSERT_TRUE(agent.RunUntil([&] { return !agent.lost.empty(); }));
  EXPECT_EQ(ReadToEnd(line.ours.get()), "") << "the agent must not hold a copy of the socket";
  EXPECT_EQ(agent.client().LastWords(line.ours.get(), kWords).code(), absl::StatusCode::kUnavailable);
}

TEST(LastWordsTest, AreNotWrittenWhileAProcessIsLeft) {
  auto file = HangingFile::Create(testing::TempDir());
  if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  Line line = MakeLine();
  DyingAgent agent([&](FakeAgent& fake) {
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), kWords).ok());
    fake.client().Spawn(fake.next_id++, fake.Command({"/bin/cat", (*file)->path()}));
    if (!(*file)->AwaitOneThatHangs(kPatience)) _exit(1);
    // The warden does not wait for a process that a KillAll has already reported as left over.
    fake.KillAll(milliseconds(50));
  });
  line.theirs.Reset();
  EXPECT_EQ(agent.KillAndAwaitWarden(), ExitInfo(Exited{0}));
  EXPECT_EQ(ReadToEnd(line.ours.get()), "");
  (*file)->Release();
}

TEST(LastWordsTest, AFullSocketDelaysTheWardensExitOnlyUpToALimit) {
  Line line = MakeLine();
  // Fill the socket buffers. The peer does not read.
  const std::string much(1 << 16, 'x');
  while (send(line.theirs.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  DyingAgent agent([&](FakeAgent& fake) {
    EXPECT_TRUE(fake.client().LastWords(line.theirs.get(), std::string(10 << 20, 'y')).ok());
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(agent.KillAndAwaitWarden(), ExitInfo(Exited{0}));
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(900)) << "the warden did not wait for the socket";
  EXPECT_LT(took, seconds(5));
}

}  // namespace
}  // namespace ddprun
