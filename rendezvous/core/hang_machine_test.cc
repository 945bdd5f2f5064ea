#include "rendezvous/core/hang_machine.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using Act = HangMachine::Act;
using Level = StandstillLevel;
using testing::ElementsAre;
using testing::IsEmpty;

const NodeId kA("a"), kB("b"), kC("c");

class HangMachineTest : public testing::Test {
 protected:
  HangMachineTest() {
    machine_.Add(kA, "host-a", Rank(0));
    machine_.Add(kB, "host-b", Rank(2));
    for (const NodeId& node : {kA, kB}) Set(node, Level::kMoving);
  }
  void Set(const NodeId& node, Level level, bool reports = true) {
    machine_.Changed(node, {.level = level, .reports = reports, .idle = seconds(20)});
  }
  std::vector<Act> Acts() {
    std::vector<Act> acts;
    while (true) {
      const Act act = machine_.Next(now_);
      if (act == Act::kNothing) return acts;
      acts.push_back(act);
    }
  }
  EvidenceCame EvidenceOf(const NodeId& node) const {
    return {.node = node,
            .round = Round(1),
            .request = machine_.request(),
            .workers = {{.local_rank = LocalRank(0), .state = WorkerEvidence::State::kSleeping},
                        {.local_rank = LocalRank(1), .state = WorkerEvidence::State::kSleeping}}};
  }

  HangMachine machine_;
  TimePoint now_ = TimePoint(seconds(100));
};

TEST_F(HangMachineTest, TheRoundIsAsStillAsItsLeastStillNode) {
  Set(kA, Level::kHung);
  EXPECT_EQ(machine_.level(), Level::kMoving);
  EXPECT_THAT(Acts(), IsEmpty());
  Set(kB, Level::kSuspect);
  EXPECT_EQ(machine_.level(), Level::kSuspect);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence));
}

TEST_F(HangMachineTest, EachActIsReturnedOnceInAStandstill) {
  Set(kA, Level::kSuspect);
  Set(kB, Level::kSuspect);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence));
  EXPECT_TRUE(machine_.Came(EvidenceOf(kA)));
  EXPECT_TRUE(machine_.Came(EvidenceOf(kB)));
  EXPECT_FALSE(machine_.Came(EvidenceOf(kB)));
  EXPECT_THAT(Acts(), IsEmpty());
  Set(kA, Level::kStill);
  EXPECT_THAT(Acts(), IsEmpty());
  Set(kB, Level::kStill);
  EXPECT_THAT(Acts(), ElementsAre(Act::kTell));
  Set(kA, Level::kHung);
  Set(kB, Level::kHung);
  EXPECT_THAT(Acts(), ElementsAre(Act::kEnd));
  EXPECT_THAT(Acts(), IsEmpty());
}

TEST_F(HangMachineTest, ABeatEndsTheStandstillAndTheNextOneIsAnother) {
  Set(kA, Level::kSuspect);
  Set(kB, Level::kSuspect);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence));
  const EvidenceCame old = EvidenceOf(kA);
  Set(kA, Level::kMoving);
  EXPECT_THAT(Acts(), IsEmpty());
  Set(kA, Level::kHung);
  Set(kB, Level::kHung);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence, Act::kTell, Act::kEnd));
  EXPECT_FALSE(machine_.Came(old));
  Set(kB, Level::kMoving);
  EXPECT_THAT(Acts(), ElementsAre(Act::kTellItMoves));
}

TEST_F(HangMachineTest, TheUsersWaitForEvidenceButNotForLong) {
  Set(kA, Level::kSuspect);
  Set(kB, Level::kSuspect);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence));
  (void)machine_.Came(EvidenceOf(kA));
  now_ += seconds(1);
  Set(kA, Level::kStill);
  Set(kB, Level::kStill);
  EXPECT_THAT(Acts(), IsEmpty());
  EXPECT_EQ(machine_.NextDeadline(), now_ + HangMachine::kEvidenceTime - seconds(1));
  now_ += HangMachine::kEvidenceTime - seconds(1);
  EXPECT_THAT(Acts(), ElementsAre(Act::kTell));
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  EXPECT_THAT(machine_.Finding().text, testing::HasSubstr("host-b has sent no evidence"));
}

TEST_F(HangMachineTest, TheEndOfTheRoundDoesNotWaitForEvidence) {
  Set(kA, Level::kHung);
  Set(kB, Level::kHung);
  EXPECT_THAT(Acts(), ElementsAre(Act::kAskForEvidence, Act::kTell, Act::kEnd));
}

TEST_F(HangMachineTest, NodesWithoutReportsDoNotCountBesideOthers) {
  Set(kB, Level::kMoving, /*reports=*/false);
  Set(kA, Level::kStill, /*reports=*/true);
  EXPECT_EQ(machine_.level(), Level::kStill);
  Set(kB, Level::kMoving, /*reports=*/true);
  EXPECT_EQ(machine_.level(), Level::kMoving);
}

TEST_F(HangMachineTest, WithoutReportsAllNodesCount) {
  Set(kB, Level::kMoving, /*reports=*/false);
  Set(kA, Level::kStill, /*reports=*/false);
  EXPECT_EQ(machine_.level(), Level::kMoving);
  Set(kB, Level::kSuspect, /*reports=*/false);
  EXPECT_EQ(machine_.level(), Level::kSuspect);
}

TEST_F(HangMachineTest, NodesThatHaveEndedOrGoneDoNotCount) {
  machine_.Add(kC, "host-c", Rank(4));
  Set(kA, Level::kStill);
  machine_.Changed(kB, {.reports = true, .ended = true});
  EXPECT_EQ(machine_.level(), Level::kStill);
  Set(kC, Level::kMoving);
  EXPECT_EQ(machine_.level(), Level::kMoving);
  machine_.Remove(kC);
  machine_.Remove(kC);
  EXPECT_EQ(machine_.level(), Level::kStill);
  machine_.Remove(kA);
  EXPECT_EQ(machine_.level(), Level::kMoving);
  Set(kC, Level::kHung);  // of a node that is not in the round
  EXPECT_EQ(machine_.level(), Level::kMoving);
}

TEST_F(HangMachineTest, EvidenceIsLimitedForLargeJobs) {
  EXPECT_EQ(machine_.max_bytes(), HangMachine::kMaxNodeBytes);
  for (int i = 0; i < 1022; ++i) machine_.Add(NodeId(std::to_string(i)), "host", Rank(4 + i));
  EXPECT_EQ(machine_.max_bytes(), HangMachine::kMaxBytes / 1024);
  for (int i = 0; i < 20'000; ++i) machine_.Add(NodeId("x" + std::to_string(i)), "host", Rank(4 + i));
  EXPECT_EQ(machine_.max_bytes(), HangMachine::kMinNodeBytes);
}

TEST_F(HangMachineTest, TheFindingHasTheRanksOfAllNodes) {
  Set(kA, Level::kSuspect);
  Set(kB, Level::kSuspect);
  (void)Acts();
  EvidenceCame b = EvidenceOf(kB);
  b.workers[1].state = WorkerEvidence::State::kStopped;
  b.missing = {"/proc has not answered"};
  (void)machine_.Came(EvidenceOf(kA));
  (void)machine_.Came(b);
  const HangFinding finding = machine_.Finding();
  ASSERT_EQ(finding.behind.size(), 1);
  EXPECT_EQ(finding.behind[0].rank, Rank(3));
  EXPECT_EQ(finding.text,
            "rank 3 on host-b is stopped by a signal; 3 others sleep; on host-b /proc has not answered");
  EXPECT_EQ(machine_.idle(), seconds(20));
}

}  // namespace
}  // namespace ddprun
