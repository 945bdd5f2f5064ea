// Tests groups of ranks with real processes, shared memory and sockets. All nodes are on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/host/rank_expectations.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
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
  RankProcesses ranks(GetParam(), {"allocate-much", MachineWith(300 << 20)});
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

INSTANTIATE_TEST_SUITE_P(HostCommunicator, AllocateTest,
                         testing::Values(std::vector{2}, std::vector{1, 1}, std::vector{2, 1}),
                         [](const auto& info) { return NameOfSplit(info.param); });

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
