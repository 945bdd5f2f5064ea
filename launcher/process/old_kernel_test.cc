// Tests the warden and WardenClient on systems that lack some system calls or /proc. Uses real processes,
// seccomp filters and mounts.

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/lacking.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The number of rseq, the newest system call in Linux 4.18. clone3, close_range and pidfds were added later.
constexpr int kLastCallOf4_18 = 334;

// A script that starts an orphan in a new session. The orphan starts a second orphan in the same way. All
// three processes print their pids.
constexpr char kEscapes[] =
    "(setsid sh -c 'trap \"\" TERM HUP; (setsid sh -c \"echo escaped \\$\\$; exec sleep 1000\" &) ; echo "
    "escaped "
    "$$; exec sleep 1000' &)\n"
    "echo escaped $$; exec sleep 1000";

// Spawns kEscapes and returns the pids of its three processes.
std::vector<pid_t> StartEscaping(FakeAgent& agent) {
  Pipe out = MakePipe();
  SpawnCommand command = agent.Shell(kEscapes);
  command.stdout_fd = out.writer.get();
  agent.client().Spawn(agent.next_id++, command);
  EXPECT_TRUE(agent.RunUntil([&] { return !agent.started.empty(); }));
  out.writer.Reset();
  std::vector<pid_t> pids;
  std::string text;
  const auto count = [&] { return std::count(text.begin(), text.end(), '\n'); };
  while (count() < 3) {
    const std::string more = ReadUntil(out.reader.get(), "\n");
    if (more.empty()) break;
    text += more;
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    pids.push_back(std::atoi(std::string(line.substr(sizeof "escaped")).c_str()));
  }
  EXPECT_EQ(pids.size(), 3u) << text;
  return pids;
}

// Returns the processes in `pids` that exist. Zombies count, because the warden, or the agent if the warden
// is lost, must reap every process.
std::vector<pid_t> Living(std::vector<pid_t> pids) {
  std::erase_if(pids, [](pid_t pid) { return kill(pid, 0) != 0; });
  return pids;
}

void ExpectAllProcessesAreKilled() {
  FakeAgent agent;
  EXPECT_EQ(agent.Run(agent.Shell("exit 3")), ExitInfo(Exited{3}));
  const std::vector<pid_t> pids = StartEscaping(agent);
  EXPECT_THAT(Living(pids), testing::SizeIs(3));
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(Living(pids), IsEmpty());
  const auto start = std::chrono::steady_clock::now();
  agent.Destroy();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(9))
      << "the destructor did not detect the warden's exit";
}

// Kills the warden. The agent must then kill the warden's descendants.
void ExpectAllProcessesAreKilledWithoutWarden() {
  FakeAgent agent;
  const std::vector<pid_t> pids = StartEscaping(agent);
  ASSERT_EQ(kill(agent.client().warden_pid(), SIGKILL), 0);
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_THAT(Living(pids), IsEmpty());
}

// A script that exits with the lowest open descriptor from 3 to 9, or with 0 if none is open.
constexpr char kFirstOpenFd[] =
    "for fd in 3 4 5 6 7 8 9; do if (: <&$fd) 2>/dev/null; then exit $fd; fi; done; exit 0";

void ExpectWorkersInheritNoDescriptors() {
  const UniqueFd leak(fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD, 7));
  ASSERT_EQ(leak.get(), 7);
  FakeAgent agent;
  EXPECT_EQ(agent.Run(agent.Shell(kFirstOpenFd)), ExitInfo(Exited{0}));
}

TEST(OldKernelTest, WithoutCloseRange) {
  for (const int error : {ENOSYS, EPERM}) {
    InChild([error] {
      ASSERT_TRUE(RefuseCalls(CallNumbers({"close_range"}), error).ok());
      ExpectWorkersInheritNoDescriptors();
      ExpectAllProcessesAreKilled();
    });
  }
}

TEST(OldKernelTest, WithoutPidfds) {
  for (const int error : {ENOSYS, EPERM, EMFILE}) {
    InChild([error] {
      ASSERT_TRUE(RefuseCalls(CallNumbers({"pidfd_open", "pidfd_send_signal"}), error).ok());
      ExpectAllProcessesAreKilled();
      ExpectAllProcessesAreKilledWithoutWarden();
    });
  }
}

TEST(OldKernelTest, WithTheSystemCallsOfLinux4_18) {
  InChild([] {
    ASSERT_TRUE(RefuseCallsAfter(kLastCallOf4_18).ok());
    ExpectWorkersInheritNoDescriptors();
    ExpectAllProcessesAreKilled();
    ExpectAllProcessesAreKilledWithoutWarden();
  });
}

TEST(OldKernelTest, WithoutProc) {
  InChild([] {
    if (const absl::Status gone = UnmountProc(); !gone.ok()) {
      std::fprintf(stderr, "skipped: %s\n", gone.ToString().c_str());
      return;
    }
    ExpectWorkersInheritNoDescriptors();
    ExpectAllProcessesAreKilled();
    ExpectAllProcessesAreKilledWithoutWarden();
  });
}

TEST(OldKernelTest, WithoutProcAndCloseRange) {
  InChild([] {
    if (!UnmountProc().ok()) return;
    ASSERT_TRUE(RefuseCalls(CallNumbers({"close_range"}), ENOSYS).ok());
    ExpectWorkersInheritNoDescriptors();
    ExpectAllProcessesAreKilled();
  });
}

// Imitates `unshare --pid --fork` without --mount-proc, where /proc shows the pids of another namespace.
TEST(OldKernelTest, WithTheProcOfAnotherPidNamespace) {
  InChild([] {
    if (unshare(CLONE_NEWPID) != 0) return;
    InChild([] {
      ASSERT_EQ(getpid(), 1);
      // Use up the low pids, because the outer /proc shows kernel threads with the same pids.
      for (int i = 0; i < 500; ++i) {
        const pid_t pid = fork();
        if (pid == 0) _exit(0);
        ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
      }
      ExpectAllProcessesAreKilled();
    });
  });
}

TEST(OldKernelTest, LogsAMissingSystemCallThatTheWardenNeeds) {
  for (const std::string call : {"signalfd4", "timerfd_create"}) {
    InChild([&] {
      ASSERT_TRUE(RefuseCalls(CallNumbers({call}), EPERM).ok());
      Pipe err = MakePipe();
      const UniqueFd stderr_before(dup(2));
      dup2(err.writer.get(), 2);
      FakeAgent agent;
      dup2(stderr_before.get(), 2);
      err.writer.Reset();
      EXPECT_THAT(
          ReadUntil(err.reader.get(), "\n"),
          HasSubstr(absl::StrCat(call == "signalfd4" ? "signalfd" : call, ": Operation not permitted")));
      ASSERT_TRUE(agent.RunUntil([&] { return !agent.lost.empty(); }));
      EXPECT_THAT(std::string(agent.lost[0].message()), HasSubstr("has exited (exit code 1)"));
    });
  }
}

}  // namespace
}  // namespace ddprun
