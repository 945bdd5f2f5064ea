#include "launcher/workers/worker_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <vector>

#include "base/worker_message.h"
#include "gtest/gtest.h"
#include "launcher/workers/testing/worker_socket_fixture.h"

namespace ddprun {
namespace {

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

TEST_F(WorkerSocketTest, AsksEveryWorkerToStop) {
  const WorkerStop stop{TimePoint(seconds(5)), "because"};
  const int early = Connect();
  Send(early, Report(2, 0, 1));
  RunUntilStep(2, 0, 1);
  socket_->AskForSnapshot(Round(2));
  EXPECT_EQ(DecodeAgentRequest(Receive(early))->stop, std::nullopt);
  socket_->AskForSnapshot(Round(2), stop);
  EXPECT_EQ(DecodeAgentRequest(Receive(early))->stop, stop);
  const int late = Connect();
  Send(late, Report(2, 1, 1));
  RunUntilStep(2, 1, 1);
  EXPECT_EQ(DecodeAgentRequest(Receive(late))->stop, stop);
  for (const int fd : {early, late}) close(fd);
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

class SurvivalTest : public WorkerSocketTest {
 protected:
  SurvivalTest() {
    socket_ =
        WorkerSocket::Open(
            io_, {}, {},
            {.asks =
                 [this](const WorkerSurvival& survival, pid_t pid) {
                   EXPECT_EQ(pid, getpid());
                   asked_.push_back(survival.local_rank.value());
                   return survival.local_rank != kRefused;
                 },
             .parked =
                 [this](const WorkerSurvival& survival) {
                   parked_.push_back(survival.local_rank.value());
                   why_ = survival.message;
                 },
             .unregistered = [this](LocalRank local_rank) { unregistered_.push_back(local_rank.value()); }})
            .value();
    socket_->BeginRound(Round(3));
  }
  static std::string Survival(int round, int local_rank, SurvivalState state, const std::string& why = "") {
    return Encode(WorkerSurvival{.round = Round(round),
                                 .rank = Rank(local_rank),
                                 .local_rank = LocalRank(local_rank),
                                 .pid = getpid(),
                                 .state = state,
                                 .message = why});
  }
  static std::string Asks(int local_rank, int round = 3) {
    return Survival(round, local_rank, SurvivalState::kAsks);
  }
  static std::string Parks(int local_rank, int round = 3) {
    return Survival(round, local_rank, SurvivalState::kParked, "rank 1\x1b[2J is gone");
  }
  static RoundOffer Place(int round) {
    return {.round = Round(round), .rank = Rank(0), .group_rank = GroupRank(0), .master_addr = "h"};
  }
  bool RunUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    return done();
  }
  // Connects a worker that has asked.
  int Register(int local_rank) {
    const int fd = Connect();
    Send(fd, Asks(local_rank));
    EXPECT_TRUE(RunUntil([&] { return !asked_.empty() && asked_.back() == local_rank; }));
    return fd;
  }
  // Handles all packets that have arrived: one that is sent later has been handled.
  void Settle() {
    const int fd = Connect();
    Send(fd, Report(3, 99, ++settled_));
    RunUntilStep(3, 99, settled_);
    close(fd);
  }

  static constexpr LocalRank kRefused{7};
  std::vector<int64_t> asked_, parked_, unregistered_;
  std::string why_;
  int settled_ = 0;
};

using Ranks = std::vector<int64_t>;

TEST_F(SurvivalTest, RegistersAConnectionAsLongAsItLasts) {
  const int fd = Register(1);
  Send(fd, Parks(1));
  ASSERT_TRUE(RunUntil([&] { return !parked_.empty(); }));
  EXPECT_EQ(parked_, Ranks{1});
  EXPECT_EQ(why_, "rank 1 [2J is gone");
  close(fd);
  ASSERT_TRUE(RunUntil([&] { return !unregistered_.empty(); }));
  EXPECT_EQ(unregistered_, Ranks{1});
  const int again = Connect();
  Send(again, Asks(1));
  EXPECT_TRUE(RunUntil([&] { return asked_ == Ranks({1, 1}); }));
  close(again);
}

TEST_F(SurvivalTest, IgnoresASecondConnectionAnotherRoundAndWorkersThatAreNotRegistered) {
  const int first = Register(1);
  const int second = Connect();
  Send(second, Asks(1));
  Send(second, Parks(1));
  const int stale = Connect();
  Send(stale, Asks(2, 2));
  Send(stale, Parks(2));
  Send(first, Parks(1, 2));
  Send(first, Parks(2));
  const int refused = Connect();
  Send(refused, Asks(7));
  Send(refused, Parks(7));
  Settle();
  EXPECT_EQ(asked_, Ranks({1, 7}));
  EXPECT_EQ(parked_, Ranks{});
  socket_->SetLevels(LocalRank(7), {.round = Round(3), .may_survive = true});
  socket_->SetLevels(LocalRank(1), {.round = Round(3), .may_survive = true});
  EXPECT_TRUE(DecodeAgentRequest(Receive(first))->may_survive);
  for (const int fd : {second, stale, refused}) EXPECT_TRUE(ReceivesNothing(fd));
  for (const int fd : {second, stale, refused}) close(fd);
  Settle();
  EXPECT_EQ(unregistered_, Ranks{});
  close(first);
}

TEST_F(SurvivalTest, LevelsAreSentOnceAndIncludeASnapshotThatIsMissing) {
  const int fd = Register(1);
  const AgentRequest may = {.round = Round(3), .may_survive = true};
  socket_->SetLevels(LocalRank(1), may);
  socket_->SetLevels(LocalRank(1), may);
  EXPECT_EQ(DecodeAgentRequest(Receive(fd)), may);
  EXPECT_TRUE(ReceivesNothing(fd));
  socket_->AskForSnapshot(Round(3));
  AgentRequest expected = may;
  expected.take_snapshot = true;
  EXPECT_EQ(DecodeAgentRequest(Receive(fd)), expected);
  AgentRequest over = may;
  over.round_over = true;
  socket_->SetLevels(LocalRank(1), over);
  expected.round_over = true;
  EXPECT_EQ(DecodeAgentRequest(Receive(fd)), expected);
  WorkerReport report = {.round = Round(3), .rank = {}, .local_rank = LocalRank(1), .step = 5};
  report.snapshot_step = 5;
  Send(fd, Encode(report));
  RunUntilStep(3, 1, 5);
  over.no_round_follows = true;
  socket_->SetLevels(LocalRank(1), over);
  EXPECT_EQ(DecodeAgentRequest(Receive(fd)), over) << "the snapshot must not be requested again";
  close(fd);
}

TEST_F(SurvivalTest, AFullBufferDelaysTheNewestRequestAndTheOfferBeforeIt) {
  const int fd = Register(1);
  // More than the socket holds; the worker does not read.
  for (int i = 0; i < 5000; ++i) {
    socket_->SetLevels(LocalRank(1), {.round = Round(3), .may_survive = true, .round_over = i % 2 == 0});
  }
  socket_->Offer(LocalRank(1), Place(4));
  socket_->SetLevels(LocalRank(1), {.round = Round(4), .may_survive = true, .round_over = true});
  const AgentRequest newest = {.round = Round(4), .may_survive = true};
  socket_->SetLevels(LocalRank(1), newest);
  std::vector<std::string> packets;
  ASSERT_TRUE(RunUntil([&] {
    char packet[1024];
    for (ssize_t n; (n = recv(fd, packet, sizeof packet, MSG_DONTWAIT)) > 0;) {
      packets.emplace_back(packet, static_cast<size_t>(n));
    }
    return packets.size() > 2 && DecodeAgentRequest(packets.back()) == newest;
  }));
  EXPECT_LT(packets.size(), 4000u) << "the buffer was not full";
  EXPECT_EQ(DecodeRoundOffer(packets[packets.size() - 2]), Place(4));
  for (size_t i = 0; i + 2 < packets.size(); ++i)
    EXPECT_EQ(DecodeAgentRequest(packets[i])->round, Round(3)) << i;
  EXPECT_TRUE(ReceivesNothing(fd));
  close(fd);
}

TEST_F(SurvivalTest, ANewRoundKeepsTheRegistrationsOfThoseThatAreKept) {
  const int kept = Register(1);
  const int ended = Register(2);
  socket_->BeginRound(Round(4), {LocalRank(1)});
  Send(kept, Parks(1, 4));
  close(ended);
  ASSERT_TRUE(RunUntil([&] { return !parked_.empty(); }));
  Settle();
  EXPECT_EQ(unregistered_, Ranks{}) << "the worker's process has ended before";
  const int next = Connect();
  Send(next, Asks(2, 4));
  EXPECT_TRUE(RunUntil([&] { return asked_ == Ranks({1, 2, 2}); }));
  close(kept);
  close(next);
}

TEST_F(SurvivalTest, ARegisteredWorkerIsNotEvicted) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 128, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::string> said;
  socket_ =
      WorkerSocket::Open(
          io_, {}, [&](const std::string& why) { said.push_back(why); },
          {.asks = [](const WorkerSurvival&, pid_t) { return true; },
           .parked = [](const WorkerSurvival&) {},
           .unregistered = [this](LocalRank local_rank) { unregistered_.push_back(local_rank.value()); }})
          .value();
  socket_->BeginRound(Round(3));
  const int fd = Connect();
  Send(fd, Asks(1));
  Settle();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const Crowd crowd(socket_->name(), 300);
  Settle();
  ASSERT_EQ(said.size(), 1u) << "the limit was not reached";
  EXPECT_EQ(unregistered_, Ranks{});
  socket_->SetLevels(LocalRank(1), {.round = Round(3), .may_survive = true});
  EXPECT_TRUE(DecodeAgentRequest(Receive(fd))->may_survive);
  close(fd);
}

}  // namespace
}  // namespace ddprun
