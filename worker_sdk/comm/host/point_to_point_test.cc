// Tests Send and Receive of the host communicator with real processes, shared memory and sockets. All nodes are on this
// machine.
#include "worker_sdk/comm/host/point_to_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/host/message_scenarios.h"
#include "worker_sdk/comm/host/rank_expectations.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class MessageTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  // Runs the scenario and expects that all ranks succeed.
  static void RunAll(std::vector<std::string> args) {
    RankProcesses ranks(GetParam(), std::move(args));
    ranks.StartAll();
    for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
  }
};

TEST_P(MessageTest, RandomMessagesAndAllReducesInFlightTogether) {
  RunAll({"message-random", StrCat(100 + GetParam().size()), "200"});
}

// communicator.h: it is no deadlock if all ranks start to send before they start to receive.
TEST_P(MessageTest, AllRanksOfARingSendFirst) { RunAll({"message-ring"}); }

TEST_P(MessageTest, AMessageProgressesWhileItsSenderWaitsForABarrier) { RunAll({"message-overlap"}); }

TEST_P(MessageTest, AMessageProgressesWhileItsSenderDoesNotWait) { RunAll({"message-background"}); }

TEST_P(MessageTest, DifferentSizesFailOnAllRanks) {
  RankProcesses ranks(GetParam(), {"message-differ"});
  ranks.StartAll();
  const int last = ranks.world_size() - 1;
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r),
              StrCat("INVALID_ARGUMENT: the calls of round 7 differ: message 1 from rank 0 to rank ", last,
                     " is send of 1000 float32 on rank 0, receive of 999 float32 on rank ", last));
  }
}

TEST_P(MessageTest, AnInvalidRankFailsAllRanks) {
  const int world = [&] {
    int n = 0;
    for (int ranks : GetParam()) n += ranks;
    return n;
  }();
  for (const auto& [peer, fault] : std::vector<std::pair<int, std::string>>{
           {world - 1, "a rank cannot exchange messages with itself"},
           {world, StrCat("rank ", world, " is not in the group of ", world)},
           {-1, StrCat("rank -1 is not in the group of ", world)}}) {
    RankProcesses ranks(GetParam(), {"message-invalid", StrCat(peer)});
    ranks.StartAll();
    for (int r = 0; r < world; ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_EQ(OutcomeOf(ranks, r),
                StrCat("INVALID_ARGUMENT: rank ", world - 1, " of round 7: send: ", fault));
    }
  }
}

// communicator.h, Send: what a rank sent before it left arrives, and messages of other pairs are not affected.
TEST_P(MessageTest, WhatARankHasSentBeforeItLeftArrives) {
  RankProcesses ranks(GetParam(), {"message-leave"});
  ranks.StartAll();
  const int leaver = ranks.world_size() - 1;
  ExpectExit(ranks, leaver, kEnded);
  EXPECT_EQ(OutcomeOf(ranks, leaver), "OK");
  ASSERT_TRUE(ranks.store().Set(kGoOn, "").ok());
  for (int r = 0; r < leaver; ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r), StrCat("UNAVAILABLE: rank ", leaver, " of round 7 has left"));
  }
}

TEST_P(MessageTest, AMessageFromARankThatLeavesFails) {
  RankProcesses ranks(GetParam(), {"message-late"});
  ranks.StartAll();
  const int leaver = ranks.world_size() - 1;
  for (int r = 0; r <= leaver; ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r),
              r == leaver ? "OK" : StrCat("UNAVAILABLE: rank ", leaver, " of round 7 has left"));
  }
}

// All ranks learn of each rank that leaves, not only of the first one.
TEST(PointToPointTest, AMessageFromTheSecondRankThatLeavesFails) {
  for (const std::vector<int>& split : {std::vector{4}, std::vector{1, 3}, std::vector{2, 3}}) {
    RankProcesses ranks(split, {"message-leave-twice"});
    ranks.StartAll();
    const int leaver = ranks.world_size() - 2;
    for (int r = 0; r < ranks.world_size(); ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_EQ(OutcomeOf(ranks, r),
                r >= leaver ? "OK" : StrCat("UNAVAILABLE: rank ", leaver, " of round 7 has left"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, MessageTest,
                         testing::Values(std::vector{2}, std::vector{3}, std::vector{4}, std::vector{1, 1},
                                         std::vector{2, 2}, std::vector{3, 1}, std::vector{1, 1, 1}),
                         [](const auto& info) { return NameOfSplit(info.param); });

// A split of ranks into nodes, and the rank that is killed or stopped.
struct Death {
  std::vector<int> split;
  int victim;
  std::string survivor = "send";  // what the survivor does
};

std::string NameOfDeath(const testing::TestParamInfo<Death>& info) {
  return StrCat(NameOfSplit(info.param.split), "_rank", info.param.victim, "_", info.param.survivor);
}

class MessageDeathTest : public testing::TestWithParam<Death> {};

TEST_P(MessageDeathTest, AKilledRankFailsMessagesOnAllOtherRanksWithinASecond) {
  const int victim = GetParam().victim;
  RankProcesses ranks(GetParam().split, {"message-forever", StrCat(victim), GetParam().survivor});
  ranks.StartAll();
  AwaitReady(ranks);
  const TimePoint killed = Clock::now();
  ranks.Kill(victim, SIGKILL);
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r != victim) ExpectExit(ranks, r, kEnded, killed + seconds(1) - Clock::now());
  }
  EXPECT_TRUE(ranks.Wait(victim, seconds(1)).has_value());
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r == victim) continue;
    EXPECT_EQ(OutcomeOf(ranks, r), StrCat("UNAVAILABLE: rank ", victim, " of round 7 is gone"))
        << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, MessageDeathTest,
                         testing::Values(Death{{2}, 0, "send"}, Death{{2}, 1, "receive"},
                                         Death{{3}, 2, "send"}, Death{{1, 1}, 0, "receive"},
                                         Death{{1, 1}, 1, "send"}, Death{{1, 1}, 0, "send"},
                                         Death{{1, 1}, 1, "receive"}, Death{{2, 2}, 3, "send"},
                                         Death{{2, 2}, 3, "receive"}, Death{{3, 1}, 2, "receive"}),
                         NameOfDeath);

class MessageStopTest : public testing::TestWithParam<Death> {};

TEST_P(MessageStopTest, OtherRanksTimeOutWithAnErrorThatNamesTheStoppedRank) {
  const int victim = GetParam().victim;
  RankProcesses ranks(GetParam().split, {"message-stop", StrCat(victim)});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r == victim) continue;
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(
        OutcomeOf(ranks, r),
        StrCat("DEADLINE_EXCEEDED: rank 0 of round 7 gave up operation 3 (message 3 from rank 1 to rank 0), "
               "waiting for rank ",
               victim));
  }
  EXPECT_TRUE(ranks.IsStopped(victim));
}

// In {3}, rank 0 waits for rank 1, which waits for the victim.
INSTANTIATE_TEST_SUITE_P(PointToPoint, MessageStopTest,
                         testing::Values(Death{{2}, 1}, Death{{3}, 2}, Death{{1, 1}, 1}), NameOfDeath);

// A rank waits for one of another node after hubs, the first ranks of their nodes, have left.
struct Unreported {
  std::vector<int> split;
  int waiter;
  int awaited;
  std::vector<int> leavers;
};

class UnreportedTest : public testing::TestWithParam<Unreported> {
 protected:
  void StartAndWait() {
    std::vector<std::string> args = {"message-unreported", StrCat(GetParam().waiter),
                                     StrCat(GetParam().awaited)};
    for (const int leaver : GetParam().leavers) args.push_back(StrCat(leaver));
    ranks_.emplace(GetParam().split, args);
    ranks_->StartAll();
    for (const int leaver : GetParam().leavers) ExpectExit(*ranks_, leaver, kEnded);
    ASSERT_TRUE(ranks_->store().Get("waits", seconds(60)).ok());
  }
  // The connections to the listener of the awaited rank that it has not accepted, although their greetings are there.
  int NumGreetings() {
    const auto entry = ranks_->store().Get(StrCat("rank/", GetParam().awaited), seconds(60));
    const int port = std::stoi(StrSplit(*entry, ' ')[1]);
    std::ifstream table("/proc/net/tcp");
    int count = 0;
    for (std::string line; std::getline(table, line);) {
      unsigned local_port = 0, state = 0, queued = 0;
      constexpr const char* kFormat = "%*d: %*8x:%4x %*8x:%*4x %2x %*8x:%8x";
      if (std::sscanf(line.c_str(), kFormat, &local_port, &state, &queued) != 3) continue;
      if (local_port == static_cast<unsigned>(port) && state == 1 && queued >= sizeof(Greeting)) ++count;
    }
    return count;
  }
  std::optional<RankProcesses> ranks_;
};

TEST_P(UnreportedTest, ADeathFailsTheMessage) {
  StartAndWait();
  ranks_->Kill(GetParam().awaited, SIGKILL);
  ExpectExit(*ranks_, GetParam().waiter, kEnded);
  EXPECT_THAT(OutcomeOf(*ranks_, GetParam().waiter),
              testing::StartsWith(StrCat("UNAVAILABLE: rank ", GetParam().awaited, " of round 7 is gone")));
}

TEST_P(UnreportedTest, LeavingFailsTheMessage) {
  StartAndWait();
  // The lower rank also connects for the message.
  const int expected = GetParam().waiter < GetParam().awaited ? 2 : 1;
  for (const TimePoint deadline = Clock::now() + seconds(60); NumGreetings() < expected;) {
    ASSERT_LT(Clock::now(), deadline) << NumGreetings();
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_TRUE(ranks_->store().Set(kGoOn, "").ok());
  ExpectExit(*ranks_, GetParam().waiter, kEnded);
  EXPECT_EQ(OutcomeOf(*ranks_, GetParam().waiter),
            StrCat("UNAVAILABLE: rank ", GetParam().awaited, " of round 7 has left"));
}

INSTANTIATE_TEST_SUITE_P(PointToPoint, UnreportedTest,
                         testing::Values(Unreported{{2, 1}, 2, 1, {0}}, Unreported{{1, 2}, 0, 2, {1}},
                                         Unreported{{2, 2}, 3, 1, {0}}, Unreported{{2, 2}, 3, 1, {2}},
                                         Unreported{{2, 2}, 3, 1, {0, 2}}, Unreported{{2, 2}, 1, 3, {0, 2}},
                                         Unreported{{2, 2}, 3, 0, {2}}),
                         [](const auto& info) {
                           return StrCat(NameOfSplit(info.param.split), "_rank", info.param.waiter, "_for",
                                         info.param.awaited, "_after", NameOfSplit(info.param.leavers));
                         });

TEST(PointToPointTest, GarbageOnTheListenersDoesNotAffectTheRanks) {
  RankProcesses ranks({1, 2}, {"message-connect"});
  ranks.StartAll();
  AwaitReady(ranks);
  std::vector<int> fds;
  for (int r = 0; r < ranks.world_size(); ++r) {
    const auto entry = ranks.store().Get(StrCat("rank/", r), seconds(60));
    ASSERT_TRUE(entry.ok()) << entry.status();
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(std::stoi(StrSplit(*entry, ' ')[1])),
                   .sin_addr = {htonl(INADDR_LOOPBACK)},
                   .sin_zero = {}};
    for (const std::string& garbage :
         {std::string(), std::string("D"), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'),
          std::string("DDPCOMM1") + std::string(20, '\0'), std::string("DDPCOMM1") + std::string(48, '\0')}) {
      fds.push_back(socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_EQ(connect(fds.back(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
      send(fds.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  ASSERT_TRUE(ranks.store().Set(kGoOn, "").ok());
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
  for (int fd : fds) close(fd);
}

// Two ranks of a node in this process.
class PairOfRanks {
 public:
  explicit PairOfRanks(const std::string& name) {
    const std::string dir = testing::TempDir() + "/" + name;
    std::filesystem::remove_all(dir);  // of an earlier run
    std::filesystem::create_directory(dir);
    const auto connect = [&](int rank) {
      FakeFileStore store(dir);
      return CreateHostCommunicator({.rank = Rank(rank),
                                     .world_size = 2,
                                     .local_rank = LocalRank(rank),
                                     .local_world_size = 2,
                                     .round = Round(7)},
                                    &store);
    };
    auto other = std::async(std::launch::async, connect, 1);
    first = *connect(0);
    second = *other.get();
  }
  Communicator first, second;
};

TEST(PointToPointTest, DestructionWithAMessagePendingAbortsIt) {
  PairOfRanks pair("pending");
  std::vector<float> values(10);
  Work work = pair.first.Receive(View(values), 1);
  EXPECT_FALSE(work.Done());
  pair.first = Communicator();
  EXPECT_TRUE(work.Done());
  EXPECT_EQ(work.Wait().code(), StatusCode::kAborted);
  EXPECT_EQ(pair.second.Send(View(values), 0).Wait().code(), StatusCode::kAborted);
}

TEST(PointToPointTest, AbortFromAnotherThreadEndsAWait) {
  PairOfRanks pair("abort");
  std::vector<float> values(10);
  std::future<Status> waiting =
      std::async(std::launch::async, [&] { return pair.first.Receive(View(values), 1).Wait(Soon()); });
  EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout);
  pair.first.Abort("enough");
  EXPECT_EQ(waiting.get(), AbortedError("rank 0 of round 7 gave up: enough"));
}

TEST(PointToPointTest, MessagesArriveInTheOrderOfTheirSends) {
  PairOfRanks pair("order");
  constexpr int kMessages = 10000;  // more than fit into the ring
  std::vector<int32_t> out(kMessages), in(kMessages, -1);
  std::vector<Work> works;
  for (int i = 0; i < kMessages; ++i) {
    out[i] = i;
    works.push_back(pair.first.Send(ConstTensor(&out[i], 1, DType::kInt32), 1));
  }
  EXPECT_FALSE(works.back().Done());
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.second.Receive(Tensor{&in[i], 1, DType::kInt32}, 0).Wait(Soon()), OkStatus());
  }
  for (Work& work : works) ASSERT_EQ(work.Wait(Soon()), OkStatus());
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace ddprun
