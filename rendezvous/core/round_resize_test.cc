// Tests of nodes that join a running job, nodes that are drained, and notices to waiting nodes.
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

class RoundResizeTest : public RoundMachineTest {
 protected:
  // Starts round 0 on "a" and "b". The job may grow by two nodes.
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

TEST_F(RoundResizeTest, ScaleUpAtSnapshotEndsTheRoundWithTheFirstSnapshot) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  EXPECT_THAT(WaitAlive(seconds(9), {"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a", "b", "c"}), ElementsAre("a:snapshot r0", "b:snapshot r0"));
  EXPECT_THAT(Join("d"), IsEmpty());  // joins with "c"; there is no second request
  EXPECT_THAT(WaitAlive(seconds(30), {"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(Snapshot("b", 0, 20), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(StopReason(), HasSubstr("1 node joined the running job; a snapshot of step 20 is there"));
  Ready("a", 0, 200);
  EXPECT_EQ(Ready("b", 0, 201).size(), 4u);
  EXPECT_EQ(machine_->restarts(), 0);
}

TEST_F(RoundResizeTest, ARequestedSnapshotTimesOut) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  EXPECT_THAT(Join("d"),
              ElementsAre("a:snapshot r0", "b:snapshot r0"));  // the job is full, so there is no last call
  EXPECT_THAT(WaitingNotice(), HasSubstr("asked for a snapshot"));
  EXPECT_THAT(WaitAlive(seconds(59), {"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(StopReason(), HasSubstr("no snapshot came within 60 s"));
}

TEST_F(RoundResizeTest, WorkersThatReportNoStepAreNotAskedForASnapshot) {
  Start(ScaleUp::kAtSnapshot);
  Join("c");
  EXPECT_THAT(Join("d"), ElementsAre("a:stop r0", "b:stop r0"));
}

TEST_F(RoundResizeTest, ASnapshotThatWasNotRequestedIsIgnored) {
  Start(ScaleUp::kAtSnapshot);
  EXPECT_THAT(Snapshot("a", 0, 5), IsEmpty());
  Join("c");
  EXPECT_THAT(Snapshot("a", 0, 10), IsEmpty());
  EXPECT_THAT(Snapshot("a", 7, 10), ElementsAre("a:refuse ABORTED"));
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundResizeTest, TheRoundContinuesIfTheNewcomersAreLost) {
  Start(ScaleUp::kAtSnapshot);
  Reports("a", 0, 17);
  Join("c");
  Join("d");
  Killed("c");
  Killed("d");
  EXPECT_THAT(Snapshot("a", 0, 20), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(120), {"a", "b"}), IsEmpty());
}

TEST_F(RoundResizeTest, WithScaleUpNeverNewcomersJoinWhenAFailureEndsTheRound) {
  Start(ScaleUp::kNever);
  Join("c");
  EXPECT_THAT(WaitingNotice(), HasSubstr("--scale-up=never"));
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
  EXPECT_THAT(Succeeded("b", 0),
              ElementsAre("b:dismiss succeeded", "c:dismiss succeeded", "d:dismiss succeeded"));
}

TEST_F(RoundResizeTest, TheSizeOfARoundIsAMultipleOfTheNodeUnit) {
  Start(ScaleUp::kImmediate, /*node_unit=*/2);
  Join("c");
  EXPECT_THAT(WaitingNotice(), HasSubstr("a spare until 1 more node joins"));
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

TEST_F(RoundResizeTest, AWaitingNodeIsDrainedImmediately) {
  Start(ScaleUp::kNever);
  Join("c");
  EXPECT_THAT(DrainNode("c"), ElementsAre("c:dismiss drained"));
  EXPECT_THAT(DismissalText("c"), HasSubstr("node host-c (c) is to be taken out: maintenance"));
  EXPECT_THAT(DrainNode("c"), IsEmpty());
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundResizeTest, ARunningNodeIsDrainedAtASnapshot) {
  Start(ScaleUp::kNever);
  Join("c");
  Reports("a", 0, 17);
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:snapshot r0", "b:snapshot r0"));
  EXPECT_THAT(DrainNode("b"), IsEmpty());
  EXPECT_THAT(Snapshot("a", 0, 18), ElementsAre("a:stop r0", "b:stop r0 for good"));
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("b:dismiss drained"));
  EXPECT_THAT(Ready("a", 0, 200), ElementsAre("a:start r1 node0/2 rank0/2 n0 addr-a:200",
                                              "c:start r1 node1/2 rank1/2 n0 addr-a:200"));
}

TEST_F(RoundResizeTest, ARunningNodeWithoutStepsIsDrainedImmediately) {
  Start(ScaleUp::kAtSnapshot);
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:stop r0", "b:stop r0 for good"));
  Ready("b", 0, 201);
  Ready("a", 0, 200);
  EXPECT_EQ(machine_->state(), State::kGathering);
  // The job does not wait for a drained node.
  EXPECT_THAT(WaitingNotice(), HasSubstr("1/4 nodes joined, waiting for at least 1 more (not heard from)"));
}

TEST_F(RoundResizeTest, ANodeThatFailsBeforeTheSnapshotIsStillDrained) {
  Start(ScaleUp::kNever);
  Join("c");
  Reports("a", 0, 17);
  DrainNode("b");
  EXPECT_THAT(Failed("b", 0), ElementsAre("a:stop r0", "b:stop r0 for good"));
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("b:dismiss drained"));
  Ready("a", 0, 200);
  EXPECT_EQ(machine_->membership().Find(NodeId("b")), nullptr);
  EXPECT_EQ(machine_->restarts(), 1);
}

TEST_F(RoundResizeTest, WaitingNodesAreRemindedOfMissingNodes) {
  Use({.min_nodes = 3, .max_nodes = 3});
  Step(NodeJoined{{.id = NodeId("a"), .host = "n1"}, {"n1", "n2", "n3"}});
  EXPECT_THAT(WaitingNotice(), HasSubstr("1/3 nodes joined, waiting for n2 (not heard from), n3"));
  Step(NodeJoined{{.id = NodeId("b"), .host = "n2"}, {"n1", "n2", "n3"}});
  std::vector<std::string> notices;
  for (int i = 0; i < 25; ++i) {
    now_ += seconds(1);
    for (const char* id : {"a", "b"}) {
      Heard(id);
      if (const std::string text = WaitingNotice(); !text.empty()) notices.push_back(text);
    }
  }
  EXPECT_THAT(notices, ElementsAre("2/3 nodes joined, waiting for n3 (not heard from); for 1 s so far",
                                   "2/3 nodes joined, waiting for n3 (not heard from); for 11 s so far",
                                   "2/3 nodes joined, waiting for n3 (not heard from); for 21 s so far"));
}

TEST_F(RoundResizeTest, NoLastCallWhenAllHostsOfTheSchedulerHaveJoined) {
  Use({.min_nodes = 1, .max_nodes = 4, .first_last_call = seconds(30), .last_call = seconds(10)});
  const auto join = [this](const std::string& id) {
    return Step(NodeJoined{{.id = NodeId(id), .host = "host-" + id, .addr = id, .store_port = 100},
                           {"host-a", "host-b", "host-c"}});
  };
  EXPECT_THAT(join("a"), IsEmpty());
  EXPECT_THAT(join("x"), IsEmpty()) << "a host that is not on the list";
  EXPECT_THAT(join("b"), IsEmpty());
  EXPECT_EQ(join("c").size(), 4u);
  EXPECT_EQ(machine_->state(), State::kRunning);
  Killed("c");
  Ready("a", 0, 1);
  Ready("x", 0, 1);
  EXPECT_EQ(Ready("b", 0, 1).size(), 6u) << "a report and a start for each";
  EXPECT_THAT(join("c"), ElementsAre("a:stop r1", "b:stop r1", "x:stop r1"))
      << "newcomers do not wait either";
}

TEST_F(RoundResizeTest, LostNodesAreListedUntilTheNextRound) {
  Start(ScaleUp::kImmediate);
  Killed("b");
  Ready("a", 0, 200);
  WaitAlive(seconds(12), {"a"});
  EXPECT_THAT(ToText(machine_->WhatIsWaitedFor(now_)),
              HasSubstr("waiting for host-b (lost 12 s ago: connection reset); for 12 s so far"));
  Join("c");
  Ready("a", 0, 200);
  EXPECT_THAT(machine_->Absent(), ::testing::SizeIs(1));  // the last call has not ended
  WaitAlive(seconds(10), {"a", "c"});
  ASSERT_EQ(machine_->round(), Round(1));
  EXPECT_THAT(machine_->Absent(), IsEmpty());
}

TEST_F(RoundResizeTest, TheJoinTimeoutOfASpareStartsWhenTheJobNeedsIt) {
  Use({.min_nodes = 2, .max_nodes = 2, .join_timeout = seconds(30)});
  for (const char* id : {"a", "b", "spare"}) Join(id);
  WaitAlive(seconds(100), {"a", "b", "spare"});
  Killed("a");
  Killed("b");
  EXPECT_THAT(WaitAlive(seconds(29), {"spare"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("spare:dismiss join timeout"));
}

}  // namespace
}  // namespace ddprun
