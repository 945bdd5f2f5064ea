#include "rendezvous/core/round_machine.h"

#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

TEST_F(RoundMachineTest, NodesThatJoinTogetherAreNotifiedOnce) {
  Use({.min_nodes = 1000, .max_nodes = 1000});
  const auto num_notices = [this] {
    return std::count_if(last_.begin(), last_.end(),
                         [](const RoundEffect& e) { return std::holds_alternative<TellWaiting>(e); });
  };
  Join("first");
  EXPECT_EQ(num_notices(), 1);
  for (int i = 0; i < 300; ++i) {
    Join(absl::StrCat("n", i));
    EXPECT_EQ(num_notices(), 0);
  }
  Wait(seconds(1));
  EXPECT_EQ(num_notices(), 301);
  EXPECT_THAT(WaitingNotice(), HasSubstr("301/1000 nodes joined, waiting for at least 699 more"));
}

TEST_F(RoundMachineTest, ARoundIsSealedImmediatelyWithMaxNodes) {
  EXPECT_THAT(Join("a", 2), IsEmpty());
  EXPECT_THAT(Join("b"), IsEmpty());
  EXPECT_THAT(Join("c"), ElementsAre("a:start r0 node0/3 rank0/4 n0 addr-a:100",
                                     "b:start r0 node1/3 rank2/4 n0 addr-a:100",
                                     "c:start r0 node2/3 rank3/4 n0 addr-a:100"));
}

TEST_F(RoundMachineTest, ARoundIsSealedWithMinNodesAfterTheLastCall) {
  Join("a");
  EXPECT_THAT(WaitAlive(seconds(40), {"a"}), IsEmpty());
  Join("b");
  EXPECT_THAT(WaitAlive(seconds(29), {"a", "b"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a", "b"}), ElementsAre("a:start r0 node0/2 rank0/2 n0 addr-a:100",
                                                             "b:start r0 node1/2 rank1/2 n0 addr-a:100"));
}

TEST_F(RoundMachineTest, TheLastCallStartsAgainIfTooFewNodesAreLeft) {
  Join("a");
  Join("b");
  WaitAlive(seconds(20), {"a", "b"});
  Killed("b");
  WaitAlive(seconds(20), {"a"});
  Join("c");
  EXPECT_THAT(WaitAlive(seconds(29), {"a", "c"}), IsEmpty());
  EXPECT_EQ(WaitAlive(seconds(1), {"a", "c"}).size(), 2u);
}

TEST_F(RoundMachineTest, NoticesDescribeWhatTheJobWaitsFor) {
  Join("a");
  EXPECT_THAT(WaitingNotice(), HasSubstr("1/3 nodes joined, waiting for at least 1 more"));
}

TEST_F(RoundMachineTest, NoticesNameTheEndOfTheLastCall) {
  Join("a");
  Join("b");
  Wait(seconds(1));
  EXPECT_THAT(WaitingNotice(), HasSubstr("last call for 1 more; the workers start in 29 s at the latest"));
}

TEST_F(RoundMachineTest, AWaitingNodeIsDismissedAfterTheJoinTimeout) {
  Join("a");
  EXPECT_THAT(WaitAlive(seconds(599), {"a"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a"}), ElementsAre("a:dismiss join timeout", "a:refuse ABORTED"));
}

TEST_F(RoundMachineTest, TheJobClosesWhenAllNodesHaveSucceeded) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("a");
  Join("b");
  EXPECT_THAT(Succeeded("a", 0), IsEmpty());
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("a:dismiss succeeded", "b:dismiss succeeded"));
  EXPECT_EQ(machine_->state(), State::kClosed);
  EXPECT_THAT(Join("late"), ElementsAre("late:dismiss rejected"));
  // A node that was cut off has had its part in the success.
  EXPECT_THAT(Step(NodeJoined{{.id = NodeId("back"), .host = "host-a", .last = LastPlace{Round(0)}}}),
              ElementsAre("back:dismiss succeeded"));
  EXPECT_EQ(machine_->NextDeadline(), std::nullopt);
}

TEST_F(RoundMachineTest, AFailureRestartsAllNodesWithoutLastCallAndIsChargedOnce) {
  Join("a");
  Join("b");
  WaitAlive(seconds(30), {"a", "b"});
  ASSERT_EQ(machine_->state(), State::kRunning);
  EXPECT_THAT(Failed("a", 0), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(Failed("b", 0), IsEmpty());  // a consequence of the same failure on the other node
  EXPECT_THAT(Ready("b", 0, 201), IsEmpty());
  EXPECT_EQ(machine_->restarts(), 0);  // the restart is charged when all nodes have reported their failures
  EXPECT_THAT(Ready("a", 0, 200),
              ElementsAre("a:report r0", "b:report r0", "a:start r1 node0/2 rank0/2 n1 addr-a:200",
                          "b:start r1 node1/2 rank1/2 n1 addr-a:200"));
  EXPECT_EQ(machine_->restarts(), 1);
}

TEST_F(RoundMachineTest, WithoutRestartsTheJobEndsWhenAllWorkersHaveStopped) {
  Use({.min_nodes = 2, .max_nodes = 2, .max_restarts = 0});
  Join("a");
  Join("b");
  EXPECT_THAT(Failed("a", 0), ElementsAre("a:stop r0", "b:stop r0"));
  EXPECT_THAT(Join("late"), IsEmpty());
  EXPECT_THAT(Ready("a", 0, 200), IsEmpty());
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("a:report r0", "b:report r0", "a:dismiss failed",
                                              "b:dismiss failed", "late:dismiss failed"));
  EXPECT_THAT(DismissalText("b"), HasSubstr("rank 0 exit 1; no restart is allowed (--max-restarts=0)"));
  EXPECT_THAT(Join("later"), ElementsAre("later:dismiss failed"));
}

TEST_F(RoundMachineTest, ALostNodeCostsNoRestartAndTheOthersContinue) {
  Join("a");
  Join("b");
  Join("c");
  EXPECT_THAT(Killed("a"), ElementsAre("b:stop r0", "c:stop r0"));
  Ready("c", 0, 302);
  EXPECT_THAT(Ready("b", 0, 301),
              ElementsAre("b:report r0", "c:report r0", "b:start r1 node0/2 rank0/2 n0 addr-b:301",
                          "c:start r1 node1/2 rank1/2 n0 addr-b:301"));
}

TEST_F(RoundMachineTest, ASilentNodeIsEvictedAfterItsLeaseAndRefusedAfterwards) {
  Join("a");
  Join("b");
  Join("c");
  WaitAlive(seconds(4), {"a", "b"});
  EXPECT_THAT(WaitAlive(seconds(1), {"a", "b"}), ElementsAre("c:dismiss evicted", "a:stop r0", "b:stop r0"));
  EXPECT_THAT(Heard("c"), ElementsAre("c:refuse ABORTED"));
  EXPECT_THAT(Ready("c", 0, 9), ElementsAre("c:refuse ABORTED"));
}

TEST_F(RoundMachineTest, AStalledCoordinatorEvictsNoNode) {
  Join("a");
  Join("b");
  Join("c");
  now_ += seconds(60);  // suspended: the timer is late and messages are unread
  EXPECT_THAT(Step(Tick{}), IsEmpty());
  for (const char* id : {"a", "b", "c"}) EXPECT_THAT(Heard(id), IsEmpty());
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundMachineTest, AStalledCoordinatorEvictsNoNodeThatMayHaveStoppedItsWorkers) {
  Join("a");
  Join("b");
  Join("c");
  Killed("c");
  now_ += seconds(100);  // longer than the time limit of the drain
  EXPECT_THAT(Step(Tick{}), IsEmpty());
  EXPECT_THAT(Ready("a", 0, 200), IsEmpty());
  EXPECT_THAT(Ready("b", 0, 201),
              ElementsAre("a:report r0", "b:report r0", "a:start r1 node0/2 rank0/2 n0 addr-a:200",
                          "b:start r1 node1/2 rank1/2 n0 addr-a:200"));
}

TEST_F(RoundMachineTest, AJobBelowMinNodesWaitsUntilANodeJoins) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("a");
  Join("b");
  Killed("b");
  EXPECT_THAT(Ready("a", 0, 200), ElementsAre("a:report r0"));
  EXPECT_EQ(machine_->state(), State::kGathering);
  EXPECT_THAT(WaitingNotice(),
              HasSubstr("1/2 nodes joined, waiting for host-b (lost 0 ms ago: connection reset)"));
  EXPECT_THAT(Join("c"), ElementsAre("a:start r1 node0/2 rank0/2 n0 addr-a:200",
                                     "c:start r1 node1/2 rank1/2 n0 addr-a:200"));
}

TEST_F(RoundMachineTest, ANewcomerThatFillsTheJobIsAdmittedImmediately) {
  Join("a");
  Join("b");
  WaitAlive(seconds(30), {"a", "b"});
  EXPECT_THAT(Join("c"), ElementsAre("a:stop r0", "b:stop r0"));
  Ready("a", 0, 200);
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("a:start r1 node0/3 rank0/3 n0 addr-a:200",
                                              "b:start r1 node1/3 rank1/3 n0 addr-a:200",
                                              "c:start r1 node2/3 rank2/3 n0 addr-a:200"));
}

TEST_F(RoundMachineTest, NewcomersAreAdmittedTogetherAfterTheLastCall) {
  Use({.min_nodes = 1, .max_nodes = 4, .first_last_call = seconds(0), .last_call = seconds(10)});
  EXPECT_EQ(Join("a").size(), 1u);
  EXPECT_THAT(Join("b"), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(9), {"a", "b"}), IsEmpty());
  EXPECT_THAT(Join("c"), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(1), {"a", "b", "c"}), ElementsAre("a:stop r0"));
  EXPECT_EQ(Ready("a", 0, 200).size(), 3u);
}

TEST_F(RoundMachineTest, ASpareTakesOverWithinOneRound) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("a");
  Join("b");
  EXPECT_THAT(Join("s"), IsEmpty());
  EXPECT_THAT(WaitingNotice(), HasSubstr("spare"));
  Killed("a");
  // The spare was not in the round, so it receives no report.
  EXPECT_THAT(Ready("b", 0, 201), ElementsAre("b:report r0", "b:start r1 node0/2 rank0/2 n0 addr-b:201",
                                              "s:start r1 node1/2 rank1/2 n0 addr-b:201"));
}

TEST_F(RoundMachineTest, ANodeThatDoesNotStopItsWorkersIsEvicted) {
  Join("a");
  Join("b");
  Join("c");
  Failed("a", 0);
  Ready("a", 0, 200);
  Ready("b", 0, 201);
  EXPECT_THAT(WaitAlive(seconds(59), {"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("c:dismiss evicted"));
  EXPECT_THAT(Gone("c"), ElementsAre("a:report r0", "b:report r0", "a:start r1 node0/2 rank0/2 n1 addr-a:200",
                                     "b:start r1 node1/2 rank1/2 n1 addr-a:200"));
}

TEST_F(RoundMachineTest, AStaleRoundIsRefused) {
  Join("a");
  Join("b");
  Join("c");
  Failed("a", 0);
  for (const char* id : {"a", "b", "c"}) Ready(id, 0, 7);
  EXPECT_EQ(machine_->round(), Round(1));
  EXPECT_THAT(Failed("b", 0), ElementsAre("b:refuse ABORTED"));
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("b:refuse ABORTED"));
  EXPECT_EQ(machine_->state(), State::kRunning);
}

TEST_F(RoundMachineTest, ANodeWhoseWorkersSucceededMayBeLost) {
  Join("a");
  Join("b");
  Join("c");
  Succeeded("c", 0);
  EXPECT_THAT(Killed("c"), IsEmpty());
  Succeeded("a", 0);
  EXPECT_THAT(Succeeded("b", 0), ElementsAre("a:dismiss succeeded", "b:dismiss succeeded"));
}

TEST_F(RoundMachineTest, RequestedRanksAreHonoredAndValidated) {
  Use({.min_nodes = 2, .max_nodes = 2});
  JoinAs("x", "h1", 1);
  EXPECT_THAT(JoinAs("y", "h2", 1), ElementsAre("y:dismiss rejected"));
  EXPECT_THAT(JoinAs("z", "h2", 2), ElementsAre("z:dismiss rejected"));
  EXPECT_THAT(JoinAs("w", "h0", 0),
              ElementsAre("w:start r0 node0/2 rank0/2 n0 h0:100", "x:start r0 node1/2 rank1/2 n0 h0:100"));
}

TEST_F(RoundMachineTest, ARestartedAgentReplacesTheNodeOfItsHost) {
  Use({.min_nodes = 2, .max_nodes = 2});
  JoinAs("x1", "h1", 1);
  JoinAs("w", "h0", 0);
  EXPECT_THAT(JoinAs("x2", "h1", 1), ElementsAre("x1:dismiss rejected", "w:stop r0"));
  EXPECT_THAT(Ready("w", 0, 7), IsEmpty());  // workers of the old node may still be running
  EXPECT_EQ(Gone("x1").size(), 3u);          // one report and two starts
}

TEST_F(RoundMachineTest, ASecondJoinByTheSameNodeIsRefused) {
  Join("a");
  EXPECT_THAT(Join("a"), ElementsAre("a:refuse ABORTED"));
}

TEST_F(RoundMachineTest, AClosedJobStaysClosed) {
  Join("a");
  EXPECT_THAT(Step(CloseRequested{Dismissal::kStopped, StopWanted{"stopped by an operator"}}),
              ElementsAre("a:dismiss stopped"));
  EXPECT_THAT(Step(CloseRequested{Dismissal::kCoordinatorEnded, StopWanted{"again"}}), IsEmpty());
  EXPECT_THAT(Heard("a"), ElementsAre("a:refuse ABORTED"));
}

using RoundMachineDeathTest = RoundMachineTest;

TEST_F(RoundMachineDeathTest, AViolatedContractAborts) {
  Join("a");
  EXPECT_DEATH((void)machine_->Step(Tick{}, now_ - seconds(1)), "now goes back by 1000 ms");
  EXPECT_DEATH((void)machine_->outcome(), "state 0, last round -1, members 1, in a round 0");
}

}  // namespace
}  // namespace ddprun
