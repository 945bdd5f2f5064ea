// Tests groups of ranks with real processes, shared memory and sockets. All nodes are on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/host/rank_expectations.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class GroupTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(GroupTest, OperationsGiveTheSameResultsInAllGroups) {
  RankProcesses ranks(GetParam(), {"groups"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

TEST_P(GroupTest, OperationsOnBuffers) {
  RankProcesses ranks(GetParam(), {"allocate"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, GroupTest,
                         testing::Values(std::vector{1}, std::vector{2}, std::vector{3}, std::vector{4},
                                         std::vector{5}, std::vector{8}, std::vector{1, 1}, std::vector{2, 2},
                                         std::vector{3, 1}, std::vector{1, 3}, std::vector{2, 3, 1},
                                         std::vector{1, 1, 1, 1}, std::vector{4, 4}),
                         [](const auto& info) { return NameOfSplit(info.param); });

// A death ends all groups, those of other ranks included.
class GroupDeathTest : public testing::TestWithParam<Death> {};

void ExpectAllOthersName(RankProcesses& ranks, int victim) {
  AwaitReady(ranks);
  const TimePoint killed = Clock::now();
  ranks.Kill(victim, SIGKILL);
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r == victim) continue;
    ExpectExit(ranks, r, kEnded, killed + seconds(1) - Clock::now());
    EXPECT_THAT(OutcomeOf(ranks, r), HasSubstr(StrCat("rank ", victim, " of round 7 is gone")))
        << "rank " << r;
  }
}

TEST_P(GroupDeathTest, AKilledRankFailsTheOperationsOfAllGroupsWithinASecond) {
  RankProcesses ranks(GetParam().split, {"group-forever"});
  ranks.StartAll();
  ExpectAllOthersName(ranks, GetParam().victim);
}

TEST_P(GroupDeathTest, AKilledRankFailsSplitsWithinASecond) {
  RankProcesses ranks(GetParam().split, {"split-forever"});
  ranks.StartAll();
  ExpectAllOthersName(ranks, GetParam().victim);
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, GroupDeathTest,
                         testing::Values(Death{{4}, 0}, Death{{4}, 3}, Death{{2, 2}, 0}, Death{{2, 2}, 3},
                                         Death{{3, 1}, 2}, Death{{1, 1, 1, 1}, 1}),
                         [](const auto& info) {
                           return StrCat(NameOfSplit(info.param.split), "_rank", info.param.victim);
                         });

class AllocateTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  AllocateTest() {
    EXPECT_NE(mkdtemp(small_.data()), nullptr);
    std::filesystem::create_directory(small_ + "/proc");
  }
  ~AllocateTest() override { std::filesystem::remove_all(small_); }
  // The root directory of a machine with this much memory.
  std::string MachineWith(int64_t num_bytes) {
    std::ofstream(small_ + "/proc/meminfo") << "MemAvailable: " << num_bytes / 1024 << " kB\n";
    return small_;
  }
  std::string small_ = testing::TempDir() + "/machine.XXXXXX";
};

TEST_P(AllocateTest, ArgumentsThatDifferFailOnAllRanks) {
  RankProcesses ranks(GetParam(), {"allocate-differ"});
  ranks.StartAll();
  const int last = ranks.world_size() - 1;
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_EQ(
        OutcomeOf(ranks, r),
        StrCat(
            "INVALID_ARGUMENT: allocate: the calls of round 7 differ: rank 0 allocates 1000 float32, rank ",
            last, " allocates 999 float32"));
  }
}

TEST_P(AllocateTest, MemoryThatDoesNotFitFailsOnAllRanksWithTheSize) {
  RankProcesses ranks(GetParam(), {"allocate-much", MachineWith(300 << 20), StrCat(100 << 20)});
  ranks.StartAll();
  const int last = ranks.world_size() - 1, on_node = GetParam().back();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r),
                testing::AllOf(
                    HasSubstr("RESOURCE_EXHAUSTED: allocate: the buffers on the node of rank "),
                    HasSubstr(StrCat(" of rank ", last, " need ", 800 * on_node, ".0 MiB of shared memory")),
                    HasSubstr("300.0 MiB left")))
        << "rank " << r;
  }
}

// The largest count is the one that communicator.h allows. The memory of this machine may suffice on the first node.
TEST_P(AllocateTest, CountsBeyond31BitsFailOnAllRanksWithTheSize) {
  for (const int64_t count : {(int64_t{1} << 31) + 1, int64_t{1} << 40, int64_t{1} << 57}) {
    SCOPED_TRACE(count);
    RankProcesses ranks(GetParam(), {"allocate-much", MachineWith(300 << 20), StrCat(count)});
    ranks.StartAll();
    const auto needs = [&](int64_t num_ranks) {
      return HasSubstr(StrCat(" need ", num_ranks * (count >> 17), ".0 MiB of shared memory, and "));
    };
    for (int r = 0; r < ranks.world_size(); ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_THAT(OutcomeOf(ranks, r),
                  testing::AllOf(HasSubstr("RESOURCE_EXHAUSTED: allocate: the buffers on the node of rank "),
                                 testing::AnyOf(needs(GetParam().front()), needs(GetParam().back()))))
          << "rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, AllocateTest,
                         testing::Values(std::vector{2}, std::vector{1, 1}, std::vector{2, 1}),
                         [](const auto& info) { return NameOfSplit(info.param); });

// The other ranks of the node free their parts.
TEST(GroupsTest, ABufferThatOneRankCannotMapFailsOnAllRanksAndIsFreed) {
  for (const std::vector<int>& split : {std::vector{2}, std::vector{3}, std::vector{1, 2}}) {
    RankProcesses ranks(split, {"allocate-unmapped", StrCat(split.back())});
    ranks.StartAll();
    const int last = ranks.world_size() - 1;
    for (int r = 0; r < ranks.world_size(); ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_THAT(OutcomeOf(ranks, r), HasSubstr(r == last ? "RESOURCE_EXHAUSTED: allocate: mapping "
                                                           : StrCat("RESOURCE_EXHAUSTED: allocate: rank ",
                                                                    last, " has no memory for ")))
          << "rank " << r;
    }
  }
}

TEST(GroupsTest, ASplitFailsIfARankLeaves) {
  for (const auto& [split, leaver] :
       std::vector<Death>{{{2}, 1}, {{3}, 0}, {{2, 2}, 2}, {{2, 2}, 3}, {{1, 1}, 0}}) {
    SCOPED_TRACE(StrCat(NameOfSplit(split), ", leaver ", leaver));
    RankProcesses ranks(split, {"split-leave", StrCat(leaver)});
    ranks.StartAll();
    for (int r = 0; r < ranks.world_size(); ++r) {
      ExpectExit(ranks, r, kEnded);
      EXPECT_THAT(OutcomeOf(ranks, r), r == leaver ? testing::Eq("OK")
                                                   : testing::Matcher<std::string>(HasSubstr(
                                                         StrCat("rank ", leaver, " of round 7 has left"))))
          << "rank " << r;
    }
  }
}

TEST(GroupsTest, GarbageAndWrongGreetingsOnAnyListenerDoNotAffectTheGroups) {
  for (const std::vector<int>& split : {std::vector{3}, std::vector{1, 1}, std::vector{2, 2}}) {
    SCOPED_TRACE(NameOfSplit(split));
    RankProcesses ranks(split, {"hostile"});
    ranks.StartAll();
    for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r, 0);
  }
}

// Two nodes in this process: ranks 0 and 1, and rank 2.
StatusOr<Communicator> ConnectThread(int rank, FakeFileStore* store) {
  return CreateHostCommunicator({.rank = Rank(rank),
                                 .world_size = 3,
                                 .local_rank = LocalRank(rank % 2),
                                 .local_world_size = rank < 2 ? 2 : 1,
                                 .group_rank = GroupRank(rank / 2),
                                 .group_world_size = 2,
                                 .round = Round(7),
                                 .chunk_bytes = 4096},
                                store);
}

// Every rank destroys a group at about the time at which one rank ends communication in the world or in a sibling.
TEST(GroupsTest, AGroupMayBeDestroyedDuringAnErrorOfItsParentOrSibling) {
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    const std::string dir = StrCat(testing::TempDir(), "/destroyed.", getpid(), ".", i);
    ASSERT_TRUE(std::filesystem::create_directory(dir));
    std::barrier<> all(3);
    std::vector<std::thread> ranks;
    std::vector<Status> ends(3);
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        FakeFileStore store(dir);
        StatusOr<Communicator> world = ConnectThread(rank, &store);
        StatusOr<Communicator> group = world.ok() ? world->Split(0) : world.status();
        StatusOr<Communicator> sibling = group.ok() ? world->Split(0) : group.status();
        all.arrive_and_wait();
        if (!sibling.ok()) {
          ends[rank] = InternalError(sibling.status().ToString());
          return;
        }
        const bool causes = rank == i % 3;
        if (causes && i % 2 == 0) world->Abort("enough");
        if (causes && i % 2 == 1) sibling->Abort("enough");
        *group = Communicator();
        ends[rank] = (i / 2 % 2 == 0 ? *sibling : *world).Barrier().Wait(Soon());
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Status& end : ends) {
      EXPECT_EQ(end, AbortedError(StrCat("rank ", i % 3, " of round 7 gave up: enough")));
    }
    std::filesystem::remove_all(dir);
  }
}

// An operation of the destroyed group is pending: that ends communication in the other groups, too.
TEST(GroupsTest, DestroyingAGroupWithAnOperationPendingEndsItsParentAndSibling) {
  const std::string dir = StrCat(testing::TempDir(), "/pending.", getpid());
  ASSERT_TRUE(std::filesystem::create_directory(dir));
  std::barrier<> all(3);
  std::vector<std::thread> ranks;
  std::vector<Status> ends(6);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      FakeFileStore store(dir);
      StatusOr<Communicator> world = ConnectThread(rank, &store);
      StatusOr<Communicator> group = world.ok() ? world->Split(0) : world.status();
      StatusOr<Communicator> sibling = group.ok() ? world->Split(0) : group.status();
      EXPECT_TRUE(sibling.ok()) << sibling.status();
      if (rank == 1 && sibling.ok()) {
        Work work = group->Barrier();
        *group = Communicator();
      }
      all.arrive_and_wait();
      if (!sibling.ok()) return;
      *group = Communicator();
      ends[rank] = sibling->Barrier().Wait(Soon());
      ends[3 + rank] = world->Barrier().Wait(Soon());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Status& end : ends) {
    EXPECT_EQ(end, AbortedError(
                       "rank 1 of round 7 gave up: its communicator was destroyed with operations pending"));
  }
  std::filesystem::remove_all(dir);
}

class NoMemoryTest : public AllocateTest {};

// The last node's hub, its only rank, has no memory for the segment. It says so to the ranks that would wait for it.
TEST_P(NoMemoryTest, ANodeWithoutMemoryForTheSegmentFailsAllRanksAtOnce) {
  RankProcesses ranks(GetParam(), {"no-memory", MachineWith(1 << 20)});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ExpectExit(ranks, r, kWrongResult, seconds(30));
    EXPECT_THAT(
        OutcomeOf(ranks, r),
        testing::AllOf(HasSubstr(StrCat("RESOURCE_EXHAUSTED: the 1 ranks of node ", GetParam().size() - 1)),
                       HasSubstr("this machine has 1.0 MiB left")))
        << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(HostCommunicator, NoMemoryTest,
                         testing::Values(std::vector{1, 1}, std::vector{2, 1}),
                         [](const auto& info) { return NameOfSplit(info.param); });

}  // namespace
}  // namespace ddprun
