// Tests the watchdog with real processes. The test and the workers' shells write to the watchdog's FIFO.

#include "launcher/monitor/watchdog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/lacking.h"

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kSleeper[] = "echo ready; exec sleep 1000";

double WallClock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() : path_(absl::StrCat(testing::TempDir(), "/timers", getpid())) { Open(); }

  void Open() {
    auto watchdog = Watchdog::Open(
        agent_.io(), path_, agent_.client().warden_pid(),
        {.say = [this](absl::string_view text) { logged_.emplace_back(text); },
         .expired = [this](const ExpiredTimers& expired) { expired_.push_back(expired.pid); }});
    ASSERT_TRUE(watchdog.ok()) << watchdog.status();
    watchdog_ = *std::move(watchdog);
  }

  static std::string Line(pid_t pid, absl::string_view scope, double expires, int signo) {
    return absl::Substitute(
        R"({"version": 1, "pid": $0, "scope_id": "$1", "expiration_time": $2, "signal": $3})"
        "\n",
        pid, scope, absl::StrFormat("%.6f", expires), signo);
  }
  // Like PyTorch's client, opens the FIFO without blocking, writes once, and closes the FIFO.
  void Write(const std::string& text) {
    const UniqueFd fifo(open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_TRUE(fifo) << "the FIFO must have a reader";
    ASSERT_EQ(write(fifo.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Returns when all requests that were written before this call have been handled.
  void AwaitAllHandled() {
    const uint64_t id = agent_.StartAndWaitReady(kSleeper);
    Write(Line(agent_.started.at(id), "the last one", 0, SIGKILL));
    EXPECT_EQ(agent_.RunToEnd(id), ExitInfo(Signaled{SIGKILL, false}));
  }
  bool IsAlive(uint64_t id) { return agent_.ended.count(id) == 0; }
  std::string Logged() const { return absl::StrJoin(logged_, "\n"); }

  const std::string path_;
  FakeAgent agent_;
  std::vector<std::string> logged_;
  std::vector<pid_t> expired_;
  std::unique_ptr<Watchdog> watchdog_;
};

TEST_F(WatchdogTest, AnExpiredTimerSignalsItsProcess) {
  const uint64_t id = agent_.StartAndWaitReady(kSleeper);
  const uint64_t other = agent_.StartAndWaitReady(kSleeper);
  const pid_t pid = agent_.started.at(id);
  constexpr double kSeconds = 0.2;
  const double expires = WallClock() + kSeconds;
  Write(Line(pid, "a \\\"step\\\"", expires, SIGTERM));
  Write(Line(agent_.started.at(other), "a step", expires + 1000, SIGTERM));
  EXPECT_EQ(agent_.RunToEnd(id), ExitInfo(Signaled{SIGTERM, false}));
  EXPECT_GE(WallClock(), expires - 0.01);
  EXPECT_TRUE(IsAlive(other));
  EXPECT_EQ(watchdog_->ExpiredTimerOf(pid), R"(its watchdog timer "a \"step\"" expired)");
  EXPECT_EQ(watchdog_->ExpiredTimerOf(agent_.started.at(other)), "");
  EXPECT_THAT(expired_, testing::ElementsAre(pid));
  EXPECT_THAT(Logged(), HasSubstr("sending it SIGTERM"));
  watchdog_->BeginRound();
  EXPECT_EQ(watchdog_->ExpiredTimerOf(pid), "");
}

TEST_F(WatchdogTest, ReleasedTimersAndTimersWithoutASignalKillNoProcess) {
  const uint64_t id = agent_.StartAndWaitReady(kSleeper);
  const pid_t pid = agent_.started.at(id);
  // All lines are in one write, so that the watchdog reads them together.
  Write(Line(pid, "released", WallClock() - 1, SIGKILL) + Line(pid, "released", -1, 0) +
        Line(pid, "no signal", WallClock() - 1, 0));
  AwaitAllHandled();
  EXPECT_TRUE(IsAlive(id));
  EXPECT_THAT(expired_, Contains(pid)) << "the timer without a signal must have expired";
  EXPECT_THAT(Logged(), HasSubstr("requests no signal"));
  EXPECT_EQ(watchdog_->ExpiredTimerOf(pid), "");
}

TEST_F(WatchdogTest, WatchesProcessesStartedByWorkers) {
  // The timer belongs to an orphaned process in its own session.
  const uint64_t id = agent_.StartAndWaitReady(
      absl::StrCat("(setsid sh -c 'echo \"{\\\"version\\\": 1, \\\"pid\\\": $$, \\\"scope_id\\\": \\\"s\\\", "
                   "\\\"expiration_time\\\": 5, \\\"signal\\\": 9}\" > ",
                   path_, "; exec sleep 1000' &); ", kSleeper));
  EXPECT_TRUE(agent_.RunUntil([&] { return !expired_.empty(); })) << Logged();
  EXPECT_TRUE(IsAlive(id));
  EXPECT_NE(expired_.at(0), agent_.started.at(id));
}

TEST_F(WatchdogTest, NeverSignalsForeignProcesses) {
  const pid_t foreign = fork();
  if (foreign == 0) {
    pause();
    _exit(0);
  }
  Write(Line(foreign, "s", 0, SIGKILL) + Line(getpid(), "s", 0, SIGKILL) + Line(1, "s", 0, SIGKILL) +
        Line(agent_.client().warden_pid(), "s", 0, SIGKILL) + Line(INT_MAX, "s", 0, SIGKILL));
  AwaitAllHandled();
  EXPECT_EQ(waitpid(foreign, nullptr, WNOHANG), 0) << "the foreign process must not be signalled";
  EXPECT_THAT(agent_.lost, IsEmpty()) << "the warden must not be signalled";
  EXPECT_THAT(Logged(), HasSubstr(absl::StrCat("process ", foreign, " is not a worker of this job")));
  EXPECT_THAT(expired_, SizeIs(1)) << "only the timer of AwaitAllHandled may expire";
  kill(foreign, SIGKILL);
  waitpid(foreign, nullptr, 0);
}

TEST_F(WatchdogTest, TimersOfAnEndedProcessDoNotExpire) {
  const uint64_t id = agent_.StartAndWaitReady(kSleeper);
  const pid_t pid = agent_.started.at(id);
  const uint64_t slow = agent_.StartAndWaitReady(kSleeper);
  const double expires = WallClock() + 2;
  Write(Line(pid, "s", expires, SIGKILL) + Line(agent_.started.at(slow), "s", expires, SIGKILL));
  AwaitAllHandled();
  expired_.clear();
  kill(pid, SIGTERM);
  EXPECT_EQ(agent_.RunToEnd(slow), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(expired_, testing::ElementsAre(agent_.started.at(slow)));
}

TEST_F(WatchdogTest, LimitsTheNumberOfLoggedErrors) {
  std::string garbage;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&garbage, "garbage ", i, "\n");
  Write(garbage);
  AwaitAllHandled();
  EXPECT_THAT(Logged(), HasSubstr("invalid timer request: not a JSON object: \"garbage 0\""));
  EXPECT_LT(logged_.size(), 30u);
  EXPECT_THAT(Logged(), HasSubstr("further errors"));
}

TEST_F(WatchdogTest, ReplacesAnExistingFileAndRemovesItsOwn) {
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  watchdog_.reset();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  std::ofstream(path_) << "left over";
  Open();
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  // If another launcher has replaced the file, the destructor does not remove it.
  std::ofstream(path_ + ".new") << "other";
  ASSERT_EQ(rename((path_ + ".new").c_str(), path_.c_str()), 0);
  watchdog_.reset();
  EXPECT_EQ(ReadAll(path_), "other");
  unlink(path_.c_str());
}

TEST_F(WatchdogTest, CreatesATemporaryFileIfThePathIsEmpty) {
  setenv("TMPDIR", testing::TempDir().c_str(), 1);
  const auto other = Watchdog::Open(agent_.io(), "", 1, {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT((*other)->path(), testing::MatchesRegex(absl::StrCat(
                                    testing::TempDir(), "/watchdog_timer_[0-9a-f]{8}-[0-9a-f-]{27}")));
  unsetenv("TMPDIR");
}

TEST_F(WatchdogTest, ErrorsNameTheFileThatCannotBeCreated) {
  for (const std::string& path : {std::string("/no/such/directory/fifo"), testing::TempDir()}) {
    const auto watchdog = Watchdog::Open(agent_.io(), path, 1, {});
    ASSERT_FALSE(watchdog.ok());
    EXPECT_THAT(watchdog.status().message(), HasSubstr(path));
    EXPECT_THAT(watchdog.status().message(), HasSubstr("TORCHELASTIC_TIMER_FILE"));
  }
}

TEST(WatchdogOnALimitedSystemTest, LogsTheMissingFeature) {
  const struct {
    std::function<absl::Status()> disable;
    std::string message;
  } kCases[] = {
      {[] { return RefuseCalls(CallNumbers({"pidfd_open"}), ENOSYS); },
       "pidfd_open: Function not implemented"},
      {[] { return RefuseCalls(CallNumbers({"pidfd_open"}), EPERM); }, "pidfd_open: Operation not permitted"},
      {UnmountProc, "cannot read /proc"},
  };
  for (const auto& c : kCases) {
    InChild([&] {
      if (!c.disable().ok()) return;
      const std::string path = absl::StrCat(testing::TempDir(), "/timers", getpid());
      FakeAgent agent;
      std::string logged;
      const auto watchdog =
          Watchdog::Open(agent.io(), path, agent.client().warden_pid(),
                         {.say = [&](absl::string_view text) { absl::StrAppend(&logged, text); },
                          .expired = [](const ExpiredTimers&) {}});
      ASSERT_TRUE(watchdog.ok()) << watchdog.status();
      const uint64_t id = agent.StartAndWaitReady(kSleeper);
      std::ofstream(path) << absl::Substitute(
          R"({"version": 1, "pid": $0, "scope_id": "s", "expiration_time": 1, "signal": 9})"
          "\n",
          agent.started.at(id));
      ASSERT_TRUE(agent.RunUntil([&] { return !logged.empty(); }));
      EXPECT_THAT(logged, HasSubstr(c.message));
    });
  }
}

}  // namespace
}  // namespace ddprun
