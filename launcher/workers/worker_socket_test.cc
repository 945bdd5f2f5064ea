#include "launcher/workers/worker_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

class WorkerSocketTest : public ::testing::Test {
 protected:
  int Connect() {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, socket_->name().data(), socket_->name().size());
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_->name().size())),
              0)
        << std::strerror(errno);
    return fd;
  }
  void Send(int fd, const std::string& packet) {
    ASSERT_EQ(send(fd, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
  }
  static std::string Report(int round, int local_rank, int step) {
    return Encode(
        WorkerReport{.round = Round(round), .rank = {}, .local_rank = LocalRank(local_rank), .step = step});
  }
  // Runs the event loop until the report with this step has arrived, for at most 10 s.
  void RunUntilStep(int round, int local_rank, int step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::seconds(1));
      const auto last = socket_->Last(Round(round), LocalRank(local_rank));
      if (last && last->step == step) return;
    }
    FAIL() << "no report of step " << step;
  }

  static std::string Receive(int fd) {
    char packet[1024];
    const ssize_t n = recv(fd, packet, sizeof packet, 0);
    return n < 0 ? std::strerror(errno) : std::string(packet, static_cast<size_t>(n));
  }
  static bool AsksForSnapshot(const std::string& packet, int round) {
    return DecodeAgentRequest(packet) == AgentRequest{.round = Round(round), .take_snapshot = true};
  }
  static bool ReceivesNothing(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  boost::asio::io_context io_;
  std::unique_ptr<WorkerSocket> socket_ = WorkerSocket::Open(io_).value();
};

TEST_F(WorkerSocketTest, KeepsTheNewestReportOfEachWorker) {
  const int a = Connect();
  const int b = Connect();
  Send(a, Report(2, 0, 10));
  Send(b, Report(2, 1, 11));
  Send(a, Report(2, 0, 12));
  RunUntilStep(2, 0, 12);
  RunUntilStep(2, 1, 11);
  EXPECT_FALSE(socket_->Last(Round(3), LocalRank(0)).has_value());
  close(a);
  close(b);
}

TEST_F(WorkerSocketTest, ReturnsTheSlowestReportAndTheFurthestStep) {
  EXPECT_FALSE(socket_->Slowest(Round(2)).has_value());
  EXPECT_EQ(socket_->FurthestStep(Round(2)), 0);
  const int fd = Connect();
  Send(fd, Report(1, 2, 3));  // from an old round
  Send(fd, Report(2, 0, 12));
  Send(fd, Report(2, 1, 11));
  RunUntilStep(2, 1, 11);
  EXPECT_EQ(socket_->Slowest(Round(2))->step, 11);
  EXPECT_EQ(socket_->FurthestStep(Round(2)), 12);
  close(fd);
}

TEST_F(WorkerSocketTest, AsksEveryWorkerForASnapshotOnce) {
  const int early = Connect();
  Send(early, Report(2, 0, 1));
  RunUntilStep(2, 0, 1);
  socket_->AskForSnapshot(Round(2));
  EXPECT_TRUE(AsksForSnapshot(Receive(early), 2));
  const int late = Connect();
  const int stale = Connect();
  Send(late, Report(2, 1, 1));
  Send(stale, Report(1, 2, 9));
  RunUntilStep(2, 1, 1);
  RunUntilStep(1, 2, 9);
  EXPECT_TRUE(AsksForSnapshot(Receive(late), 2));
  EXPECT_TRUE(ReceivesNothing(stale)) << "the worker belongs to another round";
  Send(early, Report(2, 0, 2));
  Send(late, Report(2, 1, 2));
  RunUntilStep(2, 0, 2);
  RunUntilStep(2, 1, 2);
  EXPECT_TRUE(ReceivesNothing(early));
  EXPECT_TRUE(ReceivesNothing(late));
  for (const int fd : {early, late, stale}) close(fd);
}

TEST_F(WorkerSocketTest, CallsTheHandlerForEachReport) {
  std::vector<int64_t> steps;
  socket_ = WorkerSocket::Open(io_, [&](const WorkerReport& r) { steps.push_back(r.step); }).value();
  const int fd = Connect();
  for (const int step : {1, 2, 2, 3}) Send(fd, Report(0, 0, step));
  RunUntilStep(0, 0, 3);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 2, 3}));
  close(fd);
}

TEST_F(WorkerSocketTest, GarbageDoesNotAffectOtherConnections) {
  const int bad = Connect();
  const int good = Connect();
  Send(bad, std::string(3000, '\xff'));
  Send(bad, Report(1, -5, 1));
  Send(good, Report(1, 0, 7));
  RunUntilStep(1, 0, 7);
  close(bad);
  close(good);
}

// The worker is in a container with the library of another release.
TEST_F(WorkerSocketTest, ReportsAWorkerOfAnotherVersionOnceAndTellsTheWorker) {
  std::vector<std::string> problems;
  socket_ = WorkerSocket::Open(io_, {}, [&](const std::string& what) { problems.push_back(what); }).value();
  const int other = Connect();
  const int good = Connect();
  std::string report = Report(1, 0, 5);
  report[4] = 9;
  Send(other, report);
  Send(other, report);
  Send(good, Report(1, 1, 7));
  RunUntilStep(1, 1, 7);
  io_.restart();
  io_.poll();
  ASSERT_EQ(problems.size(), 1);
  EXPECT_NE(problems[0].find("libddprun has version 9"), std::string::npos) << problems[0];
  EXPECT_FALSE(socket_->Last(Round(1), LocalRank(0)).has_value());
  EXPECT_EQ(Receive(other), EncodeVersionNotice());
  close(other);
  close(good);
}

// A terminal must not interpret what a worker sends.
TEST_F(WorkerSocketTest, ReplacesControlCharactersInTexts) {
  const int fd = Connect();
  Send(fd, Encode(WorkerReport{.round = Round(1),
                               .rank = {},
                               .local_rank = LocalRank(0),
                               .step = 1,
                               .message = "epoch\x1b[2J\n2\xff"}));
  RunUntilStep(1, 0, 1);
  EXPECT_EQ(socket_->Last(Round(1), LocalRank(0))->message, "epoch [2J 2\uFFFD");
  close(fd);
}

TEST_F(WorkerSocketTest, AcceptsConnectionsAfterDescriptorsAreFreed) {
  const int worker = Connect();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(worker) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<int> taken;
  for (int fd; (fd = dup(worker)) >= 0;) taken.push_back(fd);  // uses up all free descriptors
  io_.restart();
  io_.poll();  // returns, so accept is not retried in a busy loop
  Send(worker, Report(3, 1, 5));
  EXPECT_FALSE(socket_->Last(Round(3), LocalRank(1)).has_value());
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  RunUntilStep(3, 1, 5);
  close(worker);
}

// A process that opens `count` connections and sends no reports. The constructor returns when all
// connections have been opened.
class Crowd {
 public:
  Crowd(const std::string& name, int count) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      for (int i = 0; i < count; ++i) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) _exit(1);
      }
      if (write(ends[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1) << "not all connections succeeded";
    close(ends[0]);
  }
  ~Crowd() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST_F(WorkerSocketTest, ManyIdleConnectionsDoNotKeepWorkersOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 128, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::string> said;
  socket_ = WorkerSocket::Open(io_, {}, [&](const std::string& why) { said.push_back(why); }).value();
  const int early = Connect();
  Send(early, Report(3, 0, 1));
  RunUntilStep(3, 0, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const Crowd crowd(socket_->name(), 300);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int late = Connect();
  Send(late, Report(3, 1, 5));
  RunUntilStep(3, 1, 5);
  std::vector<int> taken;
  for (int fd; taken.size() < 64 && (fd = dup(early)) >= 0;) taken.push_back(fd);
  EXPECT_EQ(taken.size(), 64u) << "half of the descriptors are free";
  for (const int fd : taken) close(fd);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("more than 32 connections"), std::string::npos) << said[0];
  Send(early, Report(3, 0, 2));
  RunUntilStep(3, 0, 2);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  close(early);
  close(late);
}

}  // namespace
}  // namespace ddprun
