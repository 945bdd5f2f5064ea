// Tests the host communicator with real processes, shared memory and sockets. All nodes are on this machine.
#include "worker_sdk/comm/host/host_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <span>
#include <system_error>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/rank_expectations.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The files under /dev/shm that `pid` has mapped or open. The directory itself is not listed, because
// unrelated processes create and remove files in it.
std::set<std::string> ShmFilesOf(pid_t pid) {
  std::set<std::string> names;
  const auto add = [&](const std::string& path) {
    if (path.starts_with("/dev/shm/")) names.insert(path);
  };
  const std::string proc = StrCat("/proc/", pid);
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) add(line.substr(std::min(line.size(), line.find('/'))));
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd")) {
    std::error_code closed_meanwhile;
    add(std::filesystem::read_symlink(entry, closed_meanwhile));
  }
  return names;
}

// Expects that neither an abstract socket nor a listening port of the round remains.
void ExpectNothingLeft(RankProcesses& ranks) {
  std::ifstream unix_sockets("/proc/net/unix");
  const std::string names((std::istreambuf_iterator<char>(unix_sockets)), std::istreambuf_iterator<char>());
  const std::vector<std::string> hub = StrSplit(*ranks.store().Get("node/0", seconds(1)), ' ');
  if (hub[4] != "-") {
    EXPECT_THAT(names, testing::Not(HasSubstr(hub[4])));
  }
  for (int r = 0; r < ranks.world_size(); ++r) {
    const auto entry = ranks.store().Get(StrCat("rank/", r), Duration::zero());
    if (!entry.ok()) continue;
    const std::vector<std::string> address = StrSplit(*entry, ' ');
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(std::stoi(address[1])),
                   .sin_addr = {htonl(INADDR_LOOPBACK)},
                   .sin_zero = {}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_NE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0) << "port " << address[1];
    close(fd);
  }
}

// A new directory for a store. A store that has keys of an earlier run makes ranks wait for each other in vain.
std::string NewStoreDir() {
  std::string dir = testing::TempDir() + "/store.XXXXXX";
  EXPECT_NE(mkdtemp(dir.data()), nullptr);
  return dir;
}

class SplitTest : public testing::TestWithParam<std::vector<int>> {};

// communicator.h, "Result": results are bit-equal to the sum along the tree, independent of the split into
// nodes, sizes and timing.
TEST_P(SplitTest, ResultsAreBitEqualToTheSumAlongTheTree) {
  RankProcesses ranks(GetParam(), {"random", StrCat(100 + GetParam().size()), "120"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

TEST_P(SplitTest, OperationsMayUseTheOutputOfEarlierOnes) {
  RankProcesses ranks(GetParam(), {"chain"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

TEST_P(SplitTest, OperationsInPlace) {
  RankProcesses ranks(GetParam(), {"in-place"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

// communicator.h, Work: operations see the results of earlier ones, whatever memory they use.
TEST_P(SplitTest, OperationsInFlightMayUseOverlappingMemory) {
  RankProcesses ranks(GetParam(), {"overlap", StrCat(300 + GetParam().size()), "80"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, SplitTest,
                         testing::Values(std::vector{1}, std::vector{2}, std::vector{3}, std::vector{8},
                                         std::vector{1, 1}, std::vector{1, 1, 1}, std::vector{1, 1, 1, 1},
                                         std::vector{2, 2}, std::vector{3, 1}, std::vector{1, 3},
                                         std::vector{2, 3, 1}, std::vector{3, 3}, std::vector{4, 4}),
                         [](const auto& info) { return NameOfSplit(info.param); });

// A split of ranks into nodes, and an algorithm that fits it.
struct Algorithm {
  std::vector<int> split;
  AllReduceAlgorithm algorithm;
};

std::vector<Algorithm> AllAlgorithms() {
  std::vector<Algorithm> all;
  for (const auto& split : std::vector<std::vector<int>>{{1}, {2}, {3}, {4}, {5}, {8}}) {
    all.push_back({split, AllReduceAlgorithm::kSharedMemory});
  }
  for (const auto& split : std::vector<std::vector<int>>{{1, 1},
                                                         {1, 2},
                                                         {2, 1},
                                                         {1, 1, 1},
                                                         {2, 2},
                                                         {3, 1},
                                                         {1, 2, 1},
                                                         {1, 1, 1, 1},
                                                         {2, 3},
                                                         {4, 1},
                                                         {1, 3, 1},
                                                         {4, 4},
                                                         {5, 3},
                                                         {1, 6, 1},
                                                         {3, 2, 3}}) {
    all.push_back({split, AllReduceAlgorithm::kMeshOneShot});
    all.push_back({split, AllReduceAlgorithm::kMeshTwoShot});
  }
  return all;
}

std::string WithUnderscores(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class AlgorithmTest : public testing::TestWithParam<Algorithm> {};

// communicator.h, "Result": results do not depend on the algorithm. Each algorithm also runs at sizes for
// which ChooseAllReduce does not select it.
TEST_P(AlgorithmTest, ResultsAreBitEqualToTheSumAlongTheTree) {
  RankProcesses ranks(GetParam().split, {"algorithm", StrCat(static_cast<int>(GetParam().algorithm))});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, AlgorithmTest, testing::ValuesIn(AllAlgorithms()),
                         [](const auto& info) {
                           return StrCat(NameOfSplit(info.param.split), "_",
                                         WithUnderscores(NameOf(info.param.algorithm)));
                         });

class LateTest : public testing::TestWithParam<std::vector<int>> {};

// communicator.h, "Destructor": operations started on all ranks complete, even on ranks that start them after
// the others have left.
TEST_P(LateTest, BroadcastsCompleteAfterTheFirstNodeHasLeft) {
  RankProcesses ranks(GetParam(), {"late"});
  ranks.StartAll();
  const int num_first = GetParam()[0];
  for (int r = 0; r < num_first; ++r) ExpectExit(ranks, r, 0);
  ASSERT_TRUE(ranks.store().Set(kFirstNodeGone, "").ok());
  for (int r = num_first; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, LateTest,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{3, 1},
                                         std::vector{1, 3}, std::vector{2, 3, 1}),
                         [](const auto& info) { return NameOfSplit(info.param); });

class DeathTest : public testing::TestWithParam<Death> {};

TEST_P(DeathTest, AKilledRankFailsTheAllReduceOnAllOtherRanksWithinASecond) {
  RankProcesses ranks(GetParam().split, {"forever"});
  ranks.StartAll();
  AwaitReady(ranks);
  // Ranks share only unnamed memory. The kernel frees it when the last process that uses it exits, for any
  // reason.
  for (int r = 0; r < ranks.world_size(); ++r) {
    EXPECT_THAT(ShmFilesOf(ranks.pid(r)), testing::IsEmpty()) << "rank " << r;
  }
  const int victim = GetParam().victim;
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
  ExpectNothingLeft(ranks);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, DeathTest,
                         testing::Values(Death{{2}, 0}, Death{{2}, 1}, Death{{4}, 2}, Death{{1, 1}, 0},
                                         Death{{1, 1}, 1}, Death{{2, 2}, 3}, Death{{2, 2}, 2},
                                         Death{{2, 2}, 0}, Death{{3, 1}, 2}, Death{{3, 1}, 0},
                                         Death{{1, 3}, 2}, Death{{2, 2, 2}, 3}),
                         [](const auto& info) {
                           return StrCat(NameOfSplit(info.param.split), "_rank", info.param.victim);
                         });

class StopTest : public DeathTest {};

TEST_P(StopTest, OtherRanksTimeOutWithAnErrorThatNamesTheStoppedRank) {
  const int victim = GetParam().victim;
  RankProcesses ranks(GetParam().split, {"stop", StrCat(victim)});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r == victim) continue;
    ExpectExit(ranks, r, kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r), testing::AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                                                    testing::EndsWith(StrCat("waiting for rank ", victim))));
  }
  EXPECT_TRUE(ranks.IsStopped(victim));
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, StopTest,
                         testing::Values(Death{{2}, 1}, Death{{3}, 0}, Death{{1, 1}, 1}, Death{{2, 2}, 3},
                                         Death{{2, 2}, 0}, Death{{3, 1}, 2}, Death{{1, 1, 1}, 1}),
                         [](const auto& info) {
                           return StrCat(NameOfSplit(info.param.split), "_rank", info.param.victim);
                         });

class DivergentRankTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(DivergentRankTest, CallsThatDifferFailOnAllRanks) {
  RankProcesses ranks(GetParam(), {"differ-size"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r),
                testing::AllOf(HasSubstr("INVALID_ARGUMENT: the calls of round 7 differ"),
                               HasSubstr("is all-reduce (sum) of 1000 float32"),
                               HasSubstr("is all-reduce (sum) of 999 float32")));
  }
}

TEST_P(DivergentRankTest, OperationsThatDifferFailOnAllRanks) {
  RankProcesses ranks(GetParam(), {"differ-kind"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r),
                testing::AllOf(HasSubstr("INVALID_ARGUMENT: the calls of round 7 differ"),
                               HasSubstr("is all-reduce (max) of 1000 float32"),
                               HasSubstr("is broadcast of 1000 float32 from rank 0")));
  }
}

// communicator.h: ranks on different nodes detect it in the next operation.
TEST_P(DivergentRankTest, BroadcastsWithDifferentRootsFailOnAllRanks) {
  RankProcesses ranks(GetParam(), {"differ-root"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r),
                testing::AllOf(HasSubstr("INVALID_ARGUMENT: the calls of round 7 differ"),
                               HasSubstr("is broadcast of 1000 float32 from rank ")));
  }
}

TEST_P(DivergentRankTest, AnInvalidArgumentFailsAllRanks) {
  RankProcesses ranks(GetParam(), {"differ-argument"});
  ranks.StartAll();
  const int last = ranks.world_size() - 1;
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r),
              StrCat("INVALID_ARGUMENT: rank ", last, " of round 7: all-reduce: the unknown reduction 99"));
  }
}

TEST_P(DivergentRankTest, AbortFailsAllRanksWithItsReason) {
  RankProcesses ranks(GetParam(), {"differ-abort"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r),
              StrCat("ABORTED: rank ", ranks.world_size() - 1, " of round 7 gave up: out of memory"));
  }
}

TEST_P(DivergentRankTest, LeavingFailsOnlyLaterOperations) {
  RankProcesses ranks(GetParam(), {"differ-leave"});
  ranks.StartAll();
  const int leaver = ranks.world_size() - 1;
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(OutcomeOf(ranks, r),
              r == leaver ? "OK" : StrCat("UNAVAILABLE: rank ", leaver, " of round 7 has left"));
  }
}

TEST_P(DivergentRankTest, CompleteOperationsSucceedEvenIfALeaverNeverStartsTheNextOne) {
  // One exchange between nodes, two exchanges, and several chunks that overlap with those of the next operation.
  for (const int n : {1000, 100'000, 1'000'000}) {
    SCOPED_TRACE(n);
    RankProcesses ranks(GetParam(), {"ahead", StrCat(n)});
    ranks.StartAll();
    const int leaver = ranks.world_size() - 1;
    for (int r = 0; r < ranks.world_size(); ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_EQ(OutcomeOf(ranks, r),
                r == leaver ? "OK" : StrCat("UNAVAILABLE: rank ", leaver, " of round 7 has left"));
    }
  }
}

TEST_P(DivergentRankTest, OperationsOfTwoCommunicatorsMayWaitForEachOther) {
  RankProcesses ranks(GetParam(), {"two"});
  std::filesystem::create_directory(ranks.store_dir() + "/other");
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, DivergentRankTest,
                         testing::Values(std::vector{2}, std::vector{3}, std::vector{1, 1}, std::vector{2, 2},
                                         std::vector{1, 2}),
                         [](const auto& info) { return NameOfSplit(info.param); });

TEST(HostCommunicatorTest, GarbageOnTheListenerDoesNotAffectTheRanks) {
  RankProcesses ranks({1, 1}, {"random", "1", "10"});
  ranks.Start(0);
  const auto entry = ranks.store().Get("rank/0", seconds(60));
  ASSERT_TRUE(entry.ok()) << entry.status();
  const std::vector<std::string> address = StrSplit(*entry, ' ');
  sockaddr_in to{.sin_family = AF_INET,
                 .sin_port = htons(std::stoi(address[1])),
                 .sin_addr = {htonl(INADDR_LOOPBACK)},
                 .sin_zero = {}};
  std::vector<int> fds;
  for (const std::string& garbage :
       {std::string(), std::string("D"), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'),
        std::string("DDPCOMM1") + std::string(20, '\0'), std::string("DDPCOMM1") + std::string(48, '\0')}) {
    fds.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(fds.back(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    send(fds.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ranks.Start(1);
  ExpectExit(ranks, 0, 0);
  ExpectExit(ranks, 1, 0);
  for (int fd : fds) close(fd);
}

TEST(HostCommunicatorTest, RefusesInconsistentOptions) {
  struct Case {
    const char* name;
    HostCommunicatorOptions options;
  };
  const Case cases[] = {
      {"rank beyond the world", {.rank = Rank(2), .world_size = 2, .local_world_size = 2}},
      {"negative rank", {.rank = Rank(-1)}},
      {"more local ranks than ranks", {.world_size = 1, .local_world_size = 2}},
      {"local rank above rank",
       {.rank = Rank(0), .world_size = 2, .local_rank = LocalRank(1), .local_world_size = 2}},
      {"node beyond the nodes", {.group_rank = GroupRank(1)}},
      {"chunk that is not a multiple of 64", {.chunk_bytes = 5000}},
      {"chunk that is too small", {.chunk_bytes = 64}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(CreateHostCommunicator(c.options, nullptr).status().code(), StatusCode::kInvalidArgument)
        << c.name;
  }
}

TEST(HostCommunicatorTest, OneRankNeedsNoStore) {
  auto comm = CreateHostCommunicator({}, nullptr);
  ASSERT_TRUE(comm.ok()) << comm.status();
  std::vector<double> values = {1, 2, 3};
  EXPECT_EQ(comm->AllReduce(View(values), ReduceOp::kMean).Wait(Soon()), OkStatus());
  EXPECT_THAT(values, testing::ElementsAre(1, 2, 3));
}

TEST(HostCommunicatorTest, RefusesAnotherReleaseOfTheLibrary) {
  const std::string dir = NewStoreDir();
  FakeFileStore store(dir);
  ASSERT_TRUE(store.Set("node/0", "0 1 262144 -").ok());  // as version 1 did
  const HostCommunicatorOptions options{
      .rank = Rank(1), .world_size = 2, .group_rank = GroupRank(1), .group_world_size = 2, .round = Round(7)};
  const Status status = CreateHostCommunicator(options, &store).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "node 0 (rank 0 of round 7) has another version of the protocol between workers: it published \"0 1 "
      "262144 -\", this rank has version v6: use the same release of libddprun for all workers of a job");
}

TEST(HostCommunicatorTest, NamesARankThatDoesNotAppear) {
  const std::string dir = NewStoreDir();
  FakeFileStore store(dir);
  HostCommunicatorOptions options{
      .world_size = 2, .local_world_size = 2, .round = Round(7), .setup_timeout = milliseconds(50)};
  const Status status = CreateHostCommunicator(options, &store).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 of round 7 did not appear within 50 ms"));
}

TEST(HostCommunicatorTest, TheCallersFloatingPointModeDoesNotMatter) {
  for (const std::vector<int>& split : {std::vector{2}, std::vector{1, 1}}) {
    RankProcesses ranks(split, {"flush"});
    ranks.StartAll();
    for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
  }
}

TEST(HostCommunicatorTest, AfterAnErrorInvalidArgumentsReturnTheFirstError) {
  auto comm = CreateHostCommunicator({}, nullptr);
  ASSERT_TRUE(comm.ok()) << comm.status();
  comm->Abort("first");
  const Status refused = comm->Broadcast(Tensor{}, 7).Wait();
  EXPECT_EQ(refused.code(), StatusCode::kAborted) << refused;
  EXPECT_EQ(refused, comm->status());
}

TEST(HostCommunicatorTest, TimeLimitsMayBeInfinite) {
  auto comm = CreateHostCommunicator({.setup_timeout = Duration::max(), .timeout = Duration::max()}, nullptr);
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_EQ(comm->Barrier().Wait(), OkStatus());
  EXPECT_EQ(comm->Barrier().Wait(TimePoint::max()), OkStatus());
}

// The other rank does not start the operation, so it is pending when the communicator is destroyed.
TEST(HostCommunicatorTest, DestructionWithAnOperationPendingAbortsIt) {
  const std::string dir = NewStoreDir();
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
  auto comm = connect(0);
  ASSERT_TRUE(comm.ok()) << comm.status();
  auto peer = other.get();
  ASSERT_TRUE(peer.ok()) << peer.status();
  Work work = comm->Barrier();
  EXPECT_FALSE(work.Done());
  *comm = Communicator();
  EXPECT_TRUE(work.Done());
  EXPECT_EQ(work.Wait().code(), StatusCode::kAborted);
  EXPECT_EQ(peer->Barrier().Wait().code(), StatusCode::kAborted);
}

TEST(HostCommunicatorTest, WorkMayOutliveItsCommunicator) {
  auto comm = CreateHostCommunicator({}, nullptr);
  ASSERT_TRUE(comm.ok()) << comm.status();
  Work work = comm->Barrier();
  ASSERT_EQ(work.Wait(), OkStatus());
  *comm = Communicator();
  EXPECT_TRUE(work.Done());
  EXPECT_EQ(work.Wait(Soon()), OkStatus());
}

}  // namespace
}  // namespace ddprun
