// Tests a warden that is alive but does not answer, and messages that the kernel temporarily cannot send.
// Uses real processes and signals.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/lacking.h"
#include "launcher/process/warden_client.h"
#include "launcher/process/warden_protocol.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Time limit for detecting a stopped warden. It is longer than the client's limit for the warden's answers
// (5 s), and shorter than the destructor's limit for the warden's exit (11 s).
constexpr seconds kMaxDetectionTime{9};

void Stop(pid_t pid) {
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
}

TEST(StuckWardenTest, KillAllCompletesWhenTheWardenIsStopped) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  ASSERT_TRUE(agent.AwaitMarkedProcesses(3));
  Stop(agent.client().warden_pid());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(agent.KillAll(), IsEmpty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMaxDetectionTime);
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
  EXPECT_EQ(agent.ended.at(id), ExitInfo(Signaled{SIGKILL, false}));
  ASSERT_EQ(agent.lost.size(), 1u);
  EXPECT_THAT(std::string(agent.lost[0].message()), HasSubstr("has not answered for 5 s, in state T"));
  EXPECT_EQ(kill(agent.client().warden_pid(), 0), -1) << "the warden must have been killed and reaped";
}

TEST(StuckWardenTest, SpawnFailsWhenTheWardenIsStopped) {
  FakeAgent agent;
  Stop(agent.client().warden_pid());
  const auto start = std::chrono::steady_clock::now();
  const ExitInfo exit = agent.Run(agent.Command({"/bin/true"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kMaxDetectionTime);
  ASSERT_TRUE(std::holds_alternative<NeverStarted>(exit)) << ToString(exit);
  EXPECT_EQ(std::get<NeverStarted>(exit).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(agent.lost.size(), 1u);
}

TEST(StuckWardenTest, AStoppedWardenIsDetectedWhileWorkersRun) {
  FakeAgent agent;
  const uint64_t id = agent.StartAndWaitReady(kHardToKill);
  Stop(agent.client().warden_pid());
  EXPECT_EQ(agent.RunToEnd(id), ExitInfo(Signaled{SIGKILL, false}));
  EXPECT_THAT(agent.MarkedProcesses(), IsEmpty());
}

TEST(StuckWardenTest, TheDestructorDoesNotWaitForAStoppedWarden) {
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

enum class AfterStart { kAnswerPings, kBlock, kLoop };

// Starts a fake warden in a child process. It answers only kSpawn and kPing; with kBlock or kLoop, it hangs
// after its first answer.
WardenHandle StartIdleWarden(AfterStart then = AfterStart::kAnswerPings) {
  using warden_protocol::Event, warden_protocol::Request;
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  WardenHandle handle;
  handle.socket.Reset(ends[0]);
  handle.pid = fork();
  if (handle.pid == 0) {
    handle.socket.Reset();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Request request;
    while (recv(ends[1], &request, sizeof request, 0) == sizeof request) {
      Event answer = {.kind = warden_protocol::EventKind::kPong};
      if (request.kind == warden_protocol::RequestKind::kSpawn) {
        answer = {.kind = warden_protocol::EventKind::kStarted, .pid = 1, .id = request.id};
      } else if (request.kind != warden_protocol::RequestKind::kPing) {
        continue;
      }
      if (send(ends[1], &answer, sizeof answer, 0) < 0) break;
      while (then == AfterStart::kBlock) pause();
      while (then == AfterStart::kLoop) getppid();
    }
    _exit(0);
  }
  close(ends[1]);
  return handle;
}

TEST(StuckWardenTest, AWardenThatAnswersPingsButDoesNotKillIsLost) {
  boost::asio::io_context io;
  std::vector<absl::Status> lost;
  WardenClient client(io, StartIdleWarden(),
                      {.started = [](uint64_t, pid_t) {},
                       .ended = [](uint64_t, const ExitInfo&, const ResourceUse&) {},
                       .warden_lost = [&](const absl::Status& why) { lost.push_back(why); }});
  bool answered = false;
  const auto start = std::chrono::steady_clock::now();
  client.KillAll(seconds(2), [&](const std::vector<LeftOver>& left) { answered = left.empty(); });
  while (!answered && std::chrono::steady_clock::now() < start + kPatience) {
    io.restart();
    io.run_one_for(seconds(1));
  }
  EXPECT_TRUE(answered);
  EXPECT_GE(std::chrono::steady_clock::now() - start, seconds(6)) << "the limit of KillAll had not passed";
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(std::string(lost[0].message()), HasSubstr("has not killed the workers within its limit"));
}

// A client with one started worker. The client's timer is stopped, and Check() checks the warden instead.
class IdleClient {
 public:
  explicit IdleClient(AfterStart then)
      : client_(io_, StartIdleWarden(then),
                {.started = [this](uint64_t, pid_t) { started_ = true; },
                 .ended = [](uint64_t, const ExitInfo&, const ResourceUse&) {},
                 .warden_lost = [this](const absl::Status& why) { lost.push_back(why); }}) {
    client_.Spawn(1, {.argv = {"/bin/true"}});
    EXPECT_TRUE(RunUntil([this] { return started_; }));
    // Stop the timer, even if it has already expired and its handler is queued.
    client_.CheckWardenForTest();
    io_.restart();
    io_.poll();
    client_.CheckWardenForTest();
  }
  void Check() { client_.CheckWardenForTest(); }
  int unanswered() const { return client_.UnansweredPingsForTest(); }
  bool AwaitPong() {
    return RunUntil([this] { return unanswered() == 0; });
  }

  std::vector<absl::Status> lost;

 private:
  bool RunUntil(const std::function<bool()>& done) {
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < patience) {
      io_.restart();
      io_.run_one_until(patience);
    }
    return done();
  }

  boost::asio::io_context io_;
  bool started_ = false;
  WardenClient client_;
};

// Not every check sends a ping, because a ping wakes the warden.
TEST(StuckWardenTest, AnIdleWardenIsPingedAtEveryFifthCheck) {
  IdleClient client(AfterStart::kAnswerPings);
  ASSERT_TRUE(client.AwaitPong());
  std::vector<int> pinged_at;
  for (int i = 0; i < 20; ++i) {
    client.Check();
    if (client.unanswered() == 0) continue;
    pinged_at.push_back(i);
    ASSERT_TRUE(client.AwaitPong());
  }
  ASSERT_EQ(pinged_at.size(), 4u);
  for (size_t i = 1; i < pinged_at.size(); ++i) EXPECT_EQ(pinged_at[i] - pinged_at[i - 1], 5);
  EXPECT_THAT(client.lost, IsEmpty());
}

// In /proc, the hanging warden is in state S or R, like a healthy warden.
TEST(StuckWardenTest, AnIdleWardenThatHangsIsLostWithinTenChecks) {
  for (const AfterStart hang : {AfterStart::kBlock, AfterStart::kLoop}) {
    SCOPED_TRACE(static_cast<int>(hang));
    IdleClient client(hang);
    for (int i = 0; i < 10; ++i) client.Check();
    ASSERT_EQ(client.lost.size(), 1u);
    EXPECT_THAT(std::string(client.lost[0].message()), HasSubstr("has not answered for 5 s"));
  }
}

// The warden and its agent are stopped together when a container is frozen and thawed, or when a machine is
// suspended and resumed.
TEST(StuckWardenTest, AWardenStoppedTogetherWithItsAgentIsNotLost) {
  Pipe pid = MakePipe();
  const pid_t agent = fork();
  if (agent == 0) {
    FakeAgent fake;
    fake.StartAndWaitReady("echo ready; exec sleep 1000");
    const std::string warden = absl::StrCat(fake.client().warden_pid(), "\n");
    if (write(pid.writer.get(), warden.data(), warden.size()) < 0) _exit(2);
    // Run long enough for several checks of the warden.
    const auto until = std::chrono::steady_clock::now() + seconds(3);
    while (std::chrono::steady_clock::now() < until) {
      fake.io().restart();
      fake.io().run_one_until(until);
    }
    raise(SIGSTOP);
    const ExitInfo exit = fake.Run(fake.Command({"/bin/true"}));
    _exit(exit == ExitInfo(Exited{0}) && fake.lost.empty() ? 0 : 3);
  }
  pid.writer.Reset();
  const pid_t warden = std::atoi(ReadUntil(pid.reader.get(), "\n").c_str());
  ASSERT_GT(warden, 0);
  int status = 0;
  ASSERT_EQ(waitpid(agent, &status, WUNTRACED), agent);
  ASSERT_TRUE(WIFSTOPPED(status)) << "wait status " << status;
  ASSERT_EQ(kill(warden, SIGSTOP), 0);
  // Wait longer than the time after which a warden that does not answer is lost.
  poll(nullptr, 0, static_cast<int>(ToMillis(seconds(7))));
  ASSERT_EQ(kill(agent, SIGCONT), 0);
  ASSERT_EQ(kill(warden, SIGCONT), 0);
  ASSERT_EQ(waitpid(agent, &status, 0), agent);
  EXPECT_EQ(ExitInfoFromWaitStatus(status), ExitInfo(Exited{0}));
}

// Makes the first `count` calls to sendmsg() in this thread fail with `error`. All later calls succeed.
class FailingSends {
 public:
  FailingSends(int count, int error) : left_(count) {
    std::atomic<int> listener{-1};
    // Start the server thread before the filter is installed, so that the filter does not apply to it.
    server_ = std::thread([this, error, &listener] {
      listener.wait(-1);
      Serve(listener.load(), error);
    });
    server_.detach();
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {.len = std::size(program), .filter = program};
    EXPECT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    EXPECT_GE(fd, 0);
    listener = static_cast<int>(fd);
    listener.notify_one();
    while (!serving_) sched_yield();
  }
  int left() const { return left_; }

 private:
  void Serve(int listener, int error) {
    serving_ = true;
    while (true) {
      seccomp_notif call = {};
      if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
      seccomp_notif_resp answer = {.id = call.id, .val = 0, .error = -error, .flags = 0};
      if (left_ > 0) {
        --left_;
      } else {
        answer.error = 0;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      }
      ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }

  std::atomic<int> left_;
  std::atomic<bool> serving_{false};
  std::thread server_;
};

TEST(StuckWardenTest, RetriesMessagesThatTheKernelTemporarilyCannotSend) {
  for (const int error : {ENOBUFS, ENOMEM, ETOOMANYREFS}) {
    SCOPED_TRACE(std::strerror(error));
    InChild([error] {
      FakeAgent agent;
      const FailingSends fault(3, error);
      EXPECT_EQ(agent.Run(agent.Command({"/bin/true"})), ExitInfo(Exited{0}));
      EXPECT_EQ(fault.left(), 0) << "some of the injected errors did not occur";
      EXPECT_THAT(agent.lost, IsEmpty());
    });
  }
}

}  // namespace
}  // namespace ddprun
