// Notices of pre-emption: the workers stop after a snapshot, the node with the notice is let go, and nothing is charged.

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three nodes, a, b and c, in round 0. Two suffice.
class RoundNoticeTest : public RoundMachineTest {
 protected:
  void SetUp() override {
    Use({.min_nodes = 2,
         .max_nodes = 3,
         .max_restarts = 0,
         .first_last_call = seconds(30),
         .last_call = seconds(10),
         .join_timeout = seconds(100),
         .lease = seconds(500)});
    for (const char* id : {"a", "b", "c"}) Join(id);
    ASSERT_EQ(machine_->round(), Round(0));
  }
  // A job whose coordinator is in the process of node a.
  void UseHost() {
    Use({.min_nodes = 1, .max_nodes = 2, .max_restarts = 0, .last_call = seconds(10), .lease = seconds(500)});
    Step(
        NodeJoined{{.id = NodeId("a"), .host = "host-a", .store_port = 100, .hosts = true, .leased = false}});
    Join("b");
    ASSERT_EQ(machine_->round(), Round(0));
  }
  State state() const { return machine_->state(); }
};

TEST_F(RoundNoticeTest, AllWorkersStopAndTheOthersGoOnWithoutTheNode) {
  EXPECT_THAT(GiveNotice("c"), ElementsAre("a:snapshot r0 and stop", "b:snapshot r0 and stop",
                                           "c:snapshot r0 and stop and leave"));
  EXPECT_THAT(Snapshot("a", 0, 17), IsEmpty());  // the workers end by themselves
  Succeeded("a", 0);
  Succeeded("b", 0);
  EXPECT_THAT(Succeeded("c", 0), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
  EXPECT_THAT(StopReason(), HasSubstr("is pre-empted: SIGUSR1; a snapshot of step 17 is there"));
  EXPECT_THAT(Ready("c", 0, 203), ElementsAre("c:dismiss pre-empted"));
  Ready("a", 0, 201);
  EXPECT_THAT(Ready("b", 0, 202), ElementsAre("a:start r1 node0/2 rank0/2 n0 addr-a:201",
                                              "b:start r1 node1/2 rank1/2 n0 addr-a:201"));
  EXPECT_EQ(machine_->restarts(), 0);
}

TEST_F(RoundNoticeTest, WorkersThatHaveFinishedTheJobSucceed) {
  GiveNotice("c");
  for (const char* id : {"a", "b"}) Succeeded(id, 0, /*finished=*/true);
  EXPECT_THAT(Succeeded("c", 0, /*finished=*/true), Contains("c:dismiss succeeded"));
}

TEST_F(RoundNoticeTest, AnExitWithoutANoticeNeedsNoReportToSucceed) {
  for (const char* id : {"a", "b"}) Succeeded(id, 0);
  EXPECT_THAT(Succeeded("c", 0), Contains("c:dismiss succeeded"));
}

TEST_F(RoundNoticeTest, AfterTheSnapshotWorkersHaveALittleTimeToExit) {
  GiveNotice("c");
  Snapshot("a", 0, 17);
  EXPECT_THAT(Wait(milliseconds(4999)), IsEmpty());
  EXPECT_THAT(Wait(milliseconds(1)), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
}

TEST_F(RoundNoticeTest, TheRoundEndsInTimeToStopTheWorkers) {
  GiveNotice("c", seconds(60));  // a third of it is for the stop
  EXPECT_THAT(Wait(milliseconds(39'999)), IsEmpty());
  EXPECT_THAT(Wait(milliseconds(1)), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
  EXPECT_THAT(StopReason(), HasSubstr("no snapshot came within 40 s"));
}

TEST_F(RoundNoticeTest, ALaterNoticeBringsTheEndForward) {
  GiveNotice("c", seconds(60));
  EXPECT_THAT(GiveNotice("c", seconds(90)), IsEmpty());
  EXPECT_THAT(GiveNotice("c", seconds(30)), ElementsAre("c:snapshot r0 and stop and leave"));
  EXPECT_THAT(Wait(milliseconds(19'999)), IsEmpty());
  EXPECT_THAT(Wait(milliseconds(1)), Contains("c:stop r0 for good"));
}

TEST_F(RoundNoticeTest, ANoticeReplacesARequestForASnapshot) {
  Reports("a", 0, 3);
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:snapshot r0", "b:snapshot r0", "c:snapshot r0"));
  EXPECT_THAT(GiveNotice("c"), ElementsAre("a:snapshot r0 and stop", "b:snapshot r0 and stop",
                                           "c:snapshot r0 and stop and leave"));
}

TEST_F(RoundNoticeTest, AFailureAfterTheNoticeEndsTheRoundAndCostsNothing) {
  GiveNotice("c");
  const Failure failure{.exit = Exited{1}, .cause = "rank 2 exit 1"};
  EXPECT_THAT(Failed("c", 0, failure), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
  Ready("c", 0, 203, {failure});
  Ready("a", 0, 201);
  EXPECT_THAT(Ready("b", 0, 202), Contains("b:start r1 node1/2 rank1/2 n0 addr-a:201"));
  ASSERT_NE(Report(), nullptr);
  EXPECT_THAT(Report()->outcome, HasSubstr("no restart is spent: a node of the round had notice"));
}

// The scheduler sends its signal to the workers too, and they may die before their agent has said so.
TEST_F(RoundNoticeTest, ANoticeAfterTheFailureStillCountsIfTheRoundIsNotOver) {
  const Failure failure{.exit = Signaled{SIGUSR1, false}, .cause = "rank 2 was killed by SIGUSR1"};
  Failed("c", 0, failure);
  EXPECT_THAT(GiveNotice("c"), ElementsAre("c:snapshot r0 and leave", "c:stop r0 for good"));
  EXPECT_THAT(Ready("c", 0, 203, {failure}), ElementsAre("c:dismiss pre-empted"));
  Ready("a", 0, 201);
  EXPECT_THAT(Ready("b", 0, 202), Contains("b:start r1 node1/2 rank1/2 n0 addr-a:201"));
}

TEST_F(RoundNoticeTest, WorkersThatParkAfterTheNoticeHaveNotFailed) {
  GiveNotice("c");
  const Failure parked{.exit = Exited{1}, .cause = "rank 0 has parked", .parked = true};
  EXPECT_THAT(Failed("a", 0, parked), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
  Ready("a", 0, 201, {parked});
  Ready("c", 0, 203);
  EXPECT_THAT(Ready("b", 0, 202), Contains("b:start r1 node1/2 rank1/2 n0 addr-a:201"));
  EXPECT_EQ(Report(), nullptr);
}

TEST_F(RoundNoticeTest, ALossOfANodeWithANoticeIsPlanned) {
  Use({.min_nodes = 2, .max_nodes = 3, .max_restarts = 0, .lease = seconds(500), .exclude_after = 1});
  for (const char* id : {"a", "b", "c"}) Join(id);
  GiveNotice("c");
  EXPECT_THAT(Killed("c"), ElementsAre("a:stop r0", "b:stop r0"));
  Ready("a", 0, 201);
  Ready("b", 0, 202);
  EXPECT_EQ(machine_->round(), Round(1));
  Join("c");  // a replacement on the same host
  EXPECT_EQ(machine_->membership().excluded_waiting(), 0);
}

TEST_F(RoundNoticeTest, IfTooFewAreLeftTheyWaitForMore) {
  for (const char* id : {"b", "c"}) GiveNotice(id);
  for (const char* id : {"a", "b", "c"}) Succeeded(id, 0);
  EXPECT_THAT(Ready("b", 0, 202), ElementsAre("b:dismiss pre-empted"));
  EXPECT_THAT(Ready("c", 0, 203), ElementsAre("c:dismiss pre-empted"));
  Ready("a", 0, 201);
  EXPECT_EQ(state(), State::kGathering);
  EXPECT_THAT(Wait(seconds(100)), ElementsAre("a:dismiss join timeout"));
}

TEST_F(RoundNoticeTest, ANodeThatReturnsIsWaitedForLonger) {
  GiveNotice("b");
  GiveNotice("c", seconds(60), seconds(300));
  for (const char* id : {"a", "b", "c"}) Succeeded(id, 0);
  Ready("b", 0, 202);
  Ready("c", 0, 203);
  Ready("a", 0, 201);
  EXPECT_THAT(WaitingNotice(),
              HasSubstr("host-c (lost 0 ms ago: pre-empted; it said that it returns after 300 s)"));
  EXPECT_THAT(Wait(seconds(399)), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("a:dismiss join timeout"));
}

// An operator's notice would otherwise not bound the grace period of the node.
TEST_F(RoundNoticeTest, ANodeWhoseWorkersAreNotAskedIsToldHowMuchTimeIsLeft) {
  Succeeded("a", 0);  // no collective completes any more
  EXPECT_THAT(GiveNotice("c"), ElementsAre("c:snapshot r0 and leave"));
  EXPECT_THAT(Wait(seconds(40)), ElementsAre("a:stop r0", "b:stop r0", "c:stop r0 for good"));
  EXPECT_THAT(GiveNotice("b"), ElementsAre("b:snapshot r0 and leave", "b:stop r0 for good"));
}

TEST_F(RoundNoticeTest, NodesThatWaitAlreadyWaitForANodeThatReturns) {
  Use({.min_nodes = 3, .max_nodes = 3, .join_timeout = seconds(100), .lease = seconds(500)});
  Join("a");
  Join("b");
  EXPECT_THAT(GiveNotice("b", seconds(60), seconds(300)), ElementsAre("b:dismiss pre-empted"));
  EXPECT_THAT(Wait(seconds(399)), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("a:dismiss join timeout"));
}

TEST_F(RoundNoticeTest, ANodeThatWaitsIsLetGoAtOnce) {
  Join("d");
  EXPECT_THAT(GiveNotice("d"), ElementsAre("d:dismiss pre-empted"));
  EXPECT_EQ(state(), State::kRunning);
  EXPECT_THAT(GiveNotice("d"), IsEmpty());
}

TEST_F(RoundNoticeTest, ANoticeForTheHostOfTheCoordinatorEndsTheJobAfterTheSnapshot) {
  UseHost();
  EXPECT_THAT(GiveNotice("a"), ElementsAre("a:snapshot r0 and stop and leave", "b:snapshot r0 and stop"));
  Snapshot("a", 0, 17);
  Succeeded("a", 0);
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("a:stop r0 for good", "b:stop r0 for good"));
  EXPECT_THAT(Ready("a", 0, 201), IsEmpty());  // not before the others
  EXPECT_THAT(Ready("b", 0, 202), ElementsAre("a:dismiss pre-empted", "b:dismiss pre-empted"));
  EXPECT_THAT(Join("c"), ElementsAre("c:dismiss pre-empted"));
}

TEST_F(RoundNoticeTest, WorkersThatStopForTheHostOfTheCoordinatorHaveNotFinishedIfItIsASpare) {
  Use({.min_nodes = 1, .max_nodes = 1, .max_restarts = 0, .lease = seconds(500)});
  Join("b");
  Step(NodeJoined{{.id = NodeId("a"), .host = "host-a", .store_port = 100, .hosts = true, .leased = false}});
  EXPECT_THAT(GiveNotice("a"), ElementsAre("b:snapshot r0 and stop"));
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("b:stop r0 for good"));
  EXPECT_THAT(Ready("b", 0, 202), ElementsAre("a:dismiss pre-empted", "b:dismiss pre-empted"));
}

TEST_F(RoundNoticeTest, ANoticeForTheHostOfTheCoordinatorEndsADrainWithTheJob) {
  UseHost();
  DrainNode("b");
  ASSERT_EQ(state(), State::kDraining);
  EXPECT_THAT(GiveNotice("a"),
              ElementsAre("a:snapshot r0 and leave", "a:stop r0 for good", "b:stop r0 for good"));
  Ready("b", 0, 202);
  EXPECT_THAT(Ready("a", 0, 201), Contains("a:dismiss pre-empted"));
}

TEST_F(RoundNoticeTest, ANoticeForTheHostOfTheCoordinatorEndsAJobThatWaits) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Step(NodeJoined{{.id = NodeId("a"), .host = "host-a", .store_port = 100, .hosts = true, .leased = false}});
  EXPECT_THAT(GiveNotice("a"), ElementsAre("a:dismiss pre-empted"));
  EXPECT_EQ(state(), State::kClosed);
}

}  // namespace
}  // namespace ddprun
