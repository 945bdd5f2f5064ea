// Tests of nodes that leave or are lost, and of jobs that close. The machine must not seal a round before all
// workers of the previous round have exited.

#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

class RoundLeaveTest : public RoundMachineTest {
 protected:
  void SetUp() override {
    Use({.min_nodes = 1,
         .max_nodes = 3,
         .first_last_call = seconds(0),
         .last_call = seconds(0),
         .lease = seconds(5)});
    Join("a");
    Join("b");
    Ready("a", 0, 200);  // round 0 had only "a" and ended when "b" joined
    ASSERT_EQ(machine_->round(), Round(1));
  }
};

TEST_F(RoundLeaveTest, OtherNodesWaitForTheWorkersOfALeavingNode) {
  EXPECT_THAT(Leaving("b"), ElementsAre("a:stop r1", "b:stop r1"));
  EXPECT_THAT(Ready("a", 1, 201), IsEmpty());
  // The workers of "b" use their grace period, and "b" keeps sending heartbeats.
  EXPECT_THAT(WaitAlive(seconds(20), {"a", "b"}), IsEmpty());
  EXPECT_THAT(Left("b"), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:201"));
}

// Its workers have parked, so that they need time to exit although it is ready.
TEST_F(RoundLeaveTest, ANodeThatLeavesWhenItIsReadyIsNotInTheNextRound) {
  Use({.min_nodes = 1,
       .max_nodes = 2,
       .max_restarts = 3,
       .first_last_call = seconds(0),
       .last_call = seconds(0),
       .lease = seconds(500)});
  Join("a");
  Join("b");
  Ready("a", 0, 200);
  ASSERT_EQ(machine_->round(), Round(1));
  Failed("a", 1);
  Ready("b", 1, 202);
  Leaving("b");
  EXPECT_THAT(Ready("a", 1, 201), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(20), {"a", "b"}), IsEmpty());
  EXPECT_THAT(Left("b"), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n1 addr-a:201"));
}

TEST_F(RoundLeaveTest, ANodeThatLeavesWhileNodesGatherIsNotInTheNextRound) {
  Use({.min_nodes = 1,
       .max_nodes = 2,
       .max_restarts = 3,
       .first_last_call = seconds(10),
       .lease = seconds(500)});
  Join("a");
  Join("b");
  Failed("a", 0);
  for (const char* id : {"a", "b"}) Ready(id, 0, 200);
  ASSERT_EQ(machine_->round(), Round(1));
  Killed("b");
  Leaving("a");
  EXPECT_THAT(Left("a"), IsEmpty());
  EXPECT_EQ(machine_->round(), Round(1));
}

TEST_F(RoundLeaveTest, AWaitingNodeLeavesImmediately) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("a");
  EXPECT_THAT(Left("a"), IsEmpty());
  EXPECT_EQ(machine_->membership().size(), 0);
}

TEST_F(RoundLeaveTest, ALeavingNodeThatIsLostIsReportedOnce) {
  Leaving("b");
  Ready("a", 1, 201);
  Lost("b");
  EXPECT_THAT(Gone("b"), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:201"));
  EXPECT_THAT(Report()->lost_nodes, ElementsAre(HasSubstr("is leaving: its agent received SIGTERM")));
}

TEST_F(RoundLeaveTest, ABrokenConnectionDoesNotProveThatWorkersHaveExited) {
  EXPECT_THAT(Lost("b"), ElementsAre("a:stop r1"));
  EXPECT_THAT(Ready("a", 1, 201), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(4), {"a"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a"}),
              ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:201"));
}

TEST_F(RoundLeaveTest, OtherNodesContinueWhenTheWorkersAreReportedGone) {
  Lost("b");
  Ready("a", 1, 201);
  EXPECT_THAT(Gone("b"), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:201"));
}

TEST_F(RoundLeaveTest, WorkersMayBeReportedGoneBeforeTheConnectionBreaks) {
  EXPECT_THAT(Gone("b"), ElementsAre("a:stop r1"));
  EXPECT_THAT(Lost("b"), IsEmpty());
  EXPECT_THAT(Ready("a", 1, 201), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:201"));
}

TEST_F(RoundLeaveTest, TheDrainWaitsForTheLeaseOfAnEvictedNode) {
  Failed("a", 1);
  Ready("a", 1, 201);
  EXPECT_THAT(WaitAlive(seconds(60), {"a", "b"}), ElementsAre("b:dismiss evicted"));
  EXPECT_EQ(machine_->state(), State::kDraining);
  EXPECT_THAT(WaitAlive(seconds(4), {"a"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("a:report r1", "a:dismiss failed"));
}

TEST_F(RoundLeaveTest, TheLongestStopTimeoutBoundsTheDrain) {
  Use({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .lease = seconds(5)});
  Join("a");
  Step(NodeJoined{
      {.id = NodeId("b"), .host = "b", .addr = "b", .store_port = 1, .stop_timeout = seconds(300)}});
  Failed("a", 0);
  Ready("a", 0, 201);
  EXPECT_THAT(WaitAlive(seconds(299), {"a", "b"}), IsEmpty());
  EXPECT_EQ(Ready("b", 0, 202).size(), 4u);
}

TEST_F(RoundLeaveTest, TheCoordinatorsOwnNodeIsNeverEvicted) {
  Use({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  Step(NodeJoined{
      {.id = NodeId("host"), .host = "h", .addr = "h", .store_port = 1, .hosts = true, .leased = false}});
  Join("b");
  Failed("b", 0);
  Ready("b", 0, 201);
  EXPECT_THAT(WaitAlive(seconds(100), {"b"}), IsEmpty());
  EXPECT_EQ(Ready("host", 0, 200).size(), 4u);
}

TEST_F(RoundLeaveTest, AnotherHostMayTakeTheRankOfALostNode) {
  Use({.min_nodes = 2, .max_nodes = 2});
  JoinAs("x", "h1", 1);
  JoinAs("y", "h2", 0);
  Lost("x");
  EXPECT_THAT(JoinAs("z", "h3", 1), IsEmpty());
  Gone("x");
  EXPECT_EQ(Ready("y", 0, 201).size(), 3u);
}

TEST_F(RoundLeaveTest, ClosingAJobStopsItsWorkersFirst) {
  EXPECT_THAT(CloseJob(), ElementsAre("a:stop r1 for good", "b:stop r1 for good"));
  EXPECT_THAT(Join("late"), ElementsAre("late:dismiss stopped"));
  EXPECT_THAT(Ready("a", 1, 201), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(20), {"a", "b"}), IsEmpty());
  EXPECT_THAT(Ready("b", 1, 202), ElementsAre("a:dismiss stopped", "b:dismiss stopped"));
  EXPECT_EQ(machine_->outcome(), Dismissal::kStopped);
}

TEST_F(RoundLeaveTest, ASecondCloseRequestClosesTheJobImmediately) {
  CloseJob();
  EXPECT_THAT(CloseJob(), ElementsAre("a:dismiss stopped", "b:dismiss stopped"));
}

TEST_F(RoundLeaveTest, ANodeThatJoinsDuringADrainIsInTheNextRound) {
  Lost("b");
  Ready("a", 1, 201);
  EXPECT_THAT(Join("c"), IsEmpty());
  EXPECT_EQ(Gone("b").size(), 3u);  // one report and two starts
}

}  // namespace
}  // namespace ddprun
