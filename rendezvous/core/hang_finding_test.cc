#include "rendezvous/core/hang_finding.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using State = WorkerEvidence::State;
using testing::ElementsAre;
using testing::IsEmpty;

// Ranks 0 .. n-1, four on each host, which wait in the same operation.
std::vector<RankEvidence> Waiting(int n) {
  std::vector<RankEvidence> ranks;
  for (int i = 0; i < n; ++i) {
    WorkerEvidence worker{.local_rank = LocalRank(i % 4), .state = State::kSleeping, .step = 57};
    worker.operation = WorkerEvidence::Operation{.kind = "all-reduce", .number = 8812, .in_flight = true};
    ranks.push_back({Rank(i), "node" + std::to_string(i / 4), worker});
  }
  return ranks;
}

std::vector<int64_t> Behind(const HangFinding& finding) {
  std::vector<int64_t> ranks;
  for (const RankEvidence& e : finding.behind) ranks.push_back(e.rank.value());
  return ranks;
}

TEST(HangFindingTest, NoRankIsBehindIfAllWaitInTheSameOperation) {
  const HangFinding finding = FindWhoIsBehind(Waiting(8));
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_EQ(
      finding.text,
      "ranks 0 (node0), 1 (node0), 2 (node0), 3 (node0), 4 (node1), 5 (node1), 6 (node1), 7 (node1) wait in "
      "all-reduce, operation 8812");
}

TEST(HangFindingTest, NoEvidence) {
  const HangFinding finding = FindWhoIsBehind({});
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_EQ(finding.text, "");
}

TEST(HangFindingTest, AStoppedRank) {
  auto ranks = Waiting(8);
  ranks[5].worker.state = State::kStopped;
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(Behind(finding), ElementsAre(5));
  EXPECT_TRUE(finding.proven);
  EXPECT_EQ(
      finding.text,
      "rank 5 on node1 is stopped by a signal, at step 57; 7 others wait in all-reduce, operation 8812");
}

TEST(HangFindingTest, SaysHowBusyTheGpuOfANamedRankIs) {
  auto ranks = Waiting(4);
  for (RankEvidence& e : ranks) e.worker.gpu_busy = 100;
  ranks[1].worker.operation->in_flight = false;
  ranks[1].worker.gpu_busy = 0;
  EXPECT_EQ(
      FindWhoIsBehind(ranks).text,
      "rank 1 on node0 sleeps, at step 57, its GPU 0 % busy; 3 others wait in all-reduce, operation 8812");
}

TEST(HangFindingTest, MoreThanHalfOfTheRanksAreStopped) {
  auto ranks = Waiting(3);
  ranks[0].worker.state = ranks[2].worker.state = State::kStopped;
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), ElementsAre(0, 2));
}

TEST(HangFindingTest, AllAreStopped) {
  auto ranks = Waiting(2);
  ranks[0].worker.state = ranks[1].worker.state = State::kStopped;
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_EQ(finding.text, "ranks 0 (node0), 1 (node0) are stopped by a signal");
}

TEST(HangFindingTest, ABlockedRank) {
  auto ranks = Waiting(4);
  ranks[1].worker.state = State::kBlocked;
  ranks[1].worker.place = "read, in request_wait_answer";
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(Behind(finding), ElementsAre(1));
  EXPECT_TRUE(finding.proven);
  EXPECT_THAT(finding.text, testing::HasSubstr("is blocked in the kernel in read, in request_wait_answer"));
}

// A file system that all ranks use does not respond: the blocked ones do not differ from the others.
TEST(HangFindingTest, ManyBlockedRanksAreNoSign) {
  auto ranks = Waiting(4);
  for (int i = 0; i < 3; ++i) {
    ranks[i].worker.state = State::kBlocked;
    ranks[i].worker.operation->in_flight = false;
  }
  ranks[3].worker.operation->in_flight = false;
  EXPECT_THAT(FindWhoIsBehind(ranks).behind, IsEmpty());
}

TEST(HangFindingTest, ARankThatIsInNoOperation) {
  auto ranks = Waiting(2);
  ranks[1].worker.operation->in_flight = false;
  ranks[1].worker.state = State::kRunning;
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(Behind(finding), ElementsAre(1));
  EXPECT_FALSE(finding.proven);
  EXPECT_EQ(finding.text,
            "rank 1 on node0 uses the processor, at step 57; 1 other waits in all-reduce, operation 8812");
}

TEST(HangFindingTest, RanksInOtherOperations) {
  auto ranks = Waiting(5);
  ranks[2].worker.operation->number = 8813;
  ranks[4].worker.operation->kind = "broadcast";
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), ElementsAre(2, 4));
}

TEST(HangFindingTest, ARankThatWaitsForTheMajorityIsNotBehind) {
  auto ranks = Waiting(3);
  ranks[0].worker.operation.reset();
  ranks[1].worker.operation.reset();
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_EQ(
      finding.text,
      "ranks 0 (node0), 1 (node0) sleep; rank 2 on node0 waits in all-reduce, operation 8812, at step 57");
}

TEST(HangFindingTest, TwoRanksInDifferentOperations) {
  auto ranks = Waiting(2);
  ranks[1].worker.operation->kind = "barrier";
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_EQ(
      finding.text,
      "rank 0 on node0 waits in all-reduce, operation 8812, at step 57; rank 1 on node0 waits in barrier, "
      "operation 8812, at step 57");
}

TEST(HangFindingTest, TheLowestStep) {
  auto ranks = Waiting(4);
  for (RankEvidence& e : ranks) e.worker.operation.reset();
  ranks[3].worker.step = 56;
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), ElementsAre(3));
  ranks[2].worker.step = 56;  // half of the ranks: perhaps the others have skipped something
  EXPECT_THAT(FindWhoIsBehind(ranks).behind, IsEmpty());
  for (RankEvidence& e : ranks) e.worker.step.reset();
  EXPECT_THAT(FindWhoIsBehind(ranks).behind, IsEmpty());
}

TEST(HangFindingTest, AnotherStack) {
  auto ranks = Waiting(4);
  for (RankEvidence& e : ranks) {
    e.worker.operation.reset();
    e.worker.stack = "all_reduce\ntrain";
    e.worker.place = "all_reduce";
  }
  ranks[0].worker.stack = "load\ntrain";
  ranks[0].worker.place = "load (data.py:41)";
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(Behind(finding), ElementsAre(0));
  EXPECT_EQ(finding.text, "rank 0 on node0 is in load (data.py:41), at step 57; 3 others are in all_reduce");
}

TEST(HangFindingTest, ASingleRank) {
  auto ranks = Waiting(1);
  ranks[0].worker.operation.reset();
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), ElementsAre(0));
}

TEST(HangFindingTest, RanksThatHaveEndedAreNamed) {
  auto ranks = Waiting(4);
  ranks[3].worker.state = State::kEnded;
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(finding.behind, IsEmpty());
  EXPECT_THAT(finding.text, testing::EndsWith("rank 3 on node0 has ended, at step 57"));
}

TEST(HangFindingTest, ADebugger) {
  auto ranks = Waiting(2);
  ranks[1].worker.state = State::kTraced;
  ranks[1].worker.place = "gdb (pid 12)";
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_TRUE(finding.traced);
  EXPECT_THAT(finding.text, testing::HasSubstr("rank 1 on node0 is attached to a debugger: gdb (pid 12)"));
}

TEST(HangFindingTest, LongListsAreCut) {
  auto ranks = Waiting(100);
  for (int i = 0; i < 20; ++i) ranks[i].worker.state = State::kStopped;
  EXPECT_THAT(FindWhoIsBehind(ranks).text,
              testing::HasSubstr("7 (node1) and 12 more are stopped by a signal; 80 others wait"));
}

// A tool that has failed for a rank does not make the rank one that is behind.
TEST(HangFindingTest, StacksThatCannotBeComparedSeparateNoRank) {
  std::vector<RankEvidence> ranks = Waiting(4);
  for (RankEvidence& e : ranks) {
    e.worker.operation.reset();
    e.worker.stack = "barrier (c10d.py:1)\n<module> (train.py:9)";
  }
  ranks[2].worker.stack.clear();
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), IsEmpty()) << "none";
  ranks[2].worker.stack = "c10d::Work::wait\n[Python]";
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), IsEmpty()) << "of another kind";
  ranks[2].worker.stack = "barrier (c10d.py:1)\n<mod";
  EXPECT_THAT(Behind(FindWhoIsBehind(ranks)), IsEmpty()) << "cut";
  ranks[2].worker.stack = "load (data.py:3)\n<module> (train.py:7)";
  const HangFinding finding = FindWhoIsBehind(ranks);
  EXPECT_THAT(Behind(finding), ElementsAre(2));
  EXPECT_FALSE(finding.kill);
}

}  // namespace
}  // namespace ddprun
