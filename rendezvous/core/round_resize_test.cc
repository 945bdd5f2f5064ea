// Nodes that come to a running job, nodes that are taken out of it, and what those that wait are told.
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

class RoundResizeTest : public RoundMachineTest {
 protected:
  // Round 0 runs on "a" and "b"; there is room for two more.
  void Start(ScaleUp scale_up, int node_unit = 1) {
    Use({.min_nodes = 2,
         .max_nodes = 4,
         .max_restarts = 1,
         .first_last_call = seconds(0),
         .last_call = seconds(10),
         .node_unit = node_unit,
         .scale_up = scale_up,
         .snapshot_timeout = seconds(60)});
    Join("a");
    Join("b");
    ASSERT_EQ(machine_->state(), State::kRunning);
  }
};

TEST_F(RoundResizeTest, AtSnapshotTheRoundEndsWithTheFirstSnapshot) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  EXPECT_THAT(WaitAlive(seconds(9), {"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a", "b", "c"}), ElementsAre("a:snapshot r0", "b:snapshot r0"));
  EXPECT_THAT(Join("d"), IsEmpty());  // comes in with it, nobody is asked twice
  EXPECT_THAT(WaitAlive(seconds(30), {"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(Snapshot("b", 0, 20), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(StopReason(), HasSubstr("1 node joined the running job; a snapshot of step 20 is there"));
  Ready("a", 0, 200);
  EXPECT_EQ(Ready("b", 0, 201).size(), 4u);
  EXPECT_EQ(machine_->restarts(), 0);
}

TEST_F(RoundResizeTest, AWantedSnapshotThatDoesNotComeIsNotWaitedForForever) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  EXPECT_THAT(Join("d"), ElementsAre("a:snapshot r0", "b:snapshot r0"));  // full: no last call
  EXPECT_THAT(WaitingTold(), HasSubstr("asked for a snapshot"));
  EXPECT_THAT(WaitAlive(seconds(59), {"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(StopReason(), HasSubstr("no snapshot came within 60 s"));
}

TEST_F(RoundResizeTest, WorkersThatReportNoStepAreNotAsked) {
  Start(ScaleUp::kAtSnapshot);
  Join("c");
  EXPECT_THAT(Join("d"), ElementsAre("a:stop r0", "b:stop r0"));
}

TEST_F(RoundResizeTest, ASnapshotThatNobodyAskedForIsNoNews) {
  Start(ScaleUp::kAtSnapshot);
  EXPECT_THAT(Snapshot("a", 0, 5), IsEmpty());
  Join("c");
  EXPECT_THAT(Snapshot("a", 0, 10), IsEmpty());
  EXPECT_THAT(Snapshot("a", 7, 10), ElementsAre("a:no ABORTED"));
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundResizeTest, WhenTheNewcomersGoNobodyIsInterrupted) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  Join("d");
  Killed("c");
  Killed("d");
  EXPECT_THAT(Snapshot("a", 0, 20), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(120), {"a", "b"}), IsEmpty());
}

TEST_F(RoundResizeTest, NeverMeansWhenARoundEndsForAnotherReason) {
  Start(ScaleUp::kNever);
  Join("c");
  EXPECT_THAT(WaitingTold(), HasSubstr("--scale-up=never"));
  EXPECT_THAT(WaitAlive(seconds(100), {"a", "b", "c"}), IsEmpty());
  Failed("a", 0);
  Ready("a", 0, 200);
  Ready("b", 0, 201);
  EXPECT_EQ(machine_->membership().in_round(), 3);
}

TEST_F(RoundResizeTest, AJobThatIsAboutToEndIsNotInterrupted) {
  Start(ScaleUp::kImmediate);
  Succeeded("a", 0);
  Join("c");
  EXPECT_THAT(Join("d"), IsEmpty());
  Killed("a");
  EXPECT_THAT(WaitAlive(seconds(60), {"b", "c", "d"}), IsEmpty());
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("b:bye succeeded", "c:bye succeeded", "d:bye succeeded"));
}

TEST_F(RoundResizeTest, RoundsHaveAMultipleOfTheNodeUnit) {
  Start(ScaleUp::kImmediate, /*node_unit=*/2);
  Join("c");
  EXPECT_THAT(WaitingTold(), HasSubstr("a spare until 1 more come"));
  EXPECT_THAT(WaitAlive(seconds(60), {"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(Join("d"), ElementsAre("a:stop r0", "b:stop r0"));
  Ready("a", 0, 200);
  EXPECT_EQ(Ready("b", 0, 201).size(), 4u);
  Killed("d");
  for (const char* id : {"a", "b"}) Ready(id, 1, 300);
  Ready("c", 1, 300);
  EXPECT_EQ(machine_->membership().in_round(), 2);
  EXPECT_EQ(machine_->membership().Find(NodeId("c"))->phase, Phase::kWaiting);
}

TEST_F(RoundResizeTest, ANodeThatWaitsIsTakenOutAtOnce) {
  Start(ScaleUp::kNever);
  Join("c");
  EXPECT_THAT(DrainNode("c"), ElementsAre("c:bye drained"));
  EXPECT_THAT(Farewell("c"), HasSubstr("node host-c (c) is to be taken out: maintenance"));
  EXPECT_THAT(DrainNode("c"), IsEmpty());
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundResizeTest, ANodeThatRunsIsTakenOutAtASnapshot) {
  Start(ScaleUp::kNever);
  Join("c");
  Reports("a", 0, 17);
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:snapshot r0", "b:snapshot r0"));
  EXPECT_THAT(DrainNode("b"), IsEmpty());
  EXPECT_THAT(Snapshot("a", 0, 18), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("b:bye drained"));
  EXPECT_THAT(Ready("a", 0, 200), ElementsAre("a:start r1 node0/2 rank0/2 n0 addr-a:200",
                                              "c:start r1 node1/2 rank1/2 n0 addr-a:200"));
}

TEST_F(RoundResizeTest, WithoutStepsItIsTakenOutAtOnce) {
  Start(ScaleUp::kAtSnapshot);
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:stop r0", "b:stop r0"));
  Ready("b", 0, 201);
  Ready("a", 0, 200);
  EXPECT_EQ(machine_->state(), State::kGathering);
  // Nobody waits for a node that was taken out.
  EXPECT_THAT(WaitingTold(), HasSubstr("1/4 nodes joined, waiting for at least 1 more (not heard from)"));
}

TEST_F(RoundResizeTest, OneThatFailsMeanwhileIsStillTakenOut) {
  Start(ScaleUp::kNever);
  Join("c");
  Reports("a", 0, 17);
  DrainNode("b");
  EXPECT_THAT(Failed("b", 0), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("b:bye drained"));
  Ready("a", 0, 200);
  EXPECT_EQ(machine_->membership().Find(NodeId("b")), nullptr);
  EXPECT_EQ(machine_->restarts(), 1);
}

TEST_F(RoundResizeTest, WhoWaitsIsToldForWhomAgainAndAgain) {
  Use({.min_nodes = 3, .max_nodes = 3});
  Step(NodeJoined{{.id = NodeId("a"), .host = "n1"}, {"n1", "n2", "n3"}});
  EXPECT_THAT(WaitingTold(), HasSubstr("1/3 nodes joined, waiting for n2 (not heard from), n3"));
  Step(NodeJoined{{.id = NodeId("b"), .host = "n2"}, {"n1", "n2", "n3"}});
  std::vector<std::string> told;
  for (int i = 0; i < 25; ++i) {
    now_ += seconds(1);
    for (const char* id : {"a", "b"}) {
      Heard(id);
      if (const std::string text = WaitingTold(); !text.empty()) told.push_back(text);
    }
  }
  EXPECT_THAT(told, ElementsAre("2/3 nodes joined, waiting for n3 (not heard from); for 1 s so far",
                                "2/3 nodes joined, waiting for n3 (not heard from); for 11 s so far",
                                "2/3 nodes joined, waiting for n3 (not heard from); for 21 s so far"));
}

TEST_F(RoundResizeTest, LostNodesAreNamedUntilTheyAreBackOrNotWaitedFor) {
  Start(ScaleUp::kImmediate);
  Killed("b");
  Ready("a", 0, 200);
  WaitAlive(seconds(12), {"a"});
  EXPECT_THAT(ToText(machine_->WhatIsWaitedFor(now_)),
              HasSubstr("waiting for host-b (lost 12 s ago: connection reset); for 12 s so far"));
  Join("c");
  Ready("a", 0, 200);
  EXPECT_THAT(machine_->Absent(), ::testing::SizeIs(1));  // the last call for b is still going on
  WaitAlive(seconds(10), {"a", "c"});
  ASSERT_EQ(machine_->round(), Round(1));
  EXPECT_THAT(machine_->Absent(), IsEmpty());
}

TEST_F(RoundResizeTest, ASpareHasItsWholeJoinTimeoutWhenItIsNeeded) {
  Use({.min_nodes = 2, .max_nodes = 2, .join_timeout = seconds(30)});
  for (const char* id : {"a", "b", "spare"}) Join(id);
  WaitAlive(seconds(100), {"a", "b", "spare"});
  Killed("a");
  Killed("b");
  EXPECT_THAT(WaitAlive(seconds(29), {"spare"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("spare:bye join timeout"));
}

}  // namespace
}  // namespace ddprun
