// Notices of pre-emption, and workers that are asked to stop after a snapshot.
#include <chrono>
#include <csignal>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/agent_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class AgentNoticeTest : public AgentMachineTest {
 protected:
  void Join() { Step(Welcomed{}); }
  void Run() {
    Join();
    Start(0);
  }
  Words AskToStop(Duration within) {
    return Step(
        SnapshotWanted{.round = Round(0), .reason = "because", .from_step = 5, .stop_within = within});
  }
  void Pass(Duration time) { now_ += time; }
  // The time until the next deadline.
  Duration Until() const { return machine_.NextDeadline().value_or(now_) - now_; }
};

TEST_F(AgentNoticeTest, IsSentOnceTheNodeHasJoined) {
  EXPECT_EQ(Notice(seconds(60)), Words{});
  EXPECT_THAT(Said(), HasSubstr("received SIGUSR1: this node goes away in 60 s"));
  Pass(seconds(10));
  EXPECT_EQ(Step(Welcomed{}), Words{"preempted 50000"});
}

TEST_F(AgentNoticeTest, ALaterOneCanOnlyBringTheEndForward) {
  Run();
  EXPECT_EQ(Notice(seconds(60)), Words{"preempted 60000"});
  EXPECT_EQ(Notice(seconds(61)), Words{});
  EXPECT_THAT(Said(), HasSubstr("an earlier notice of pre-emption ends before"));
  EXPECT_EQ(Notice(seconds(20)), Words{"preempted 20000"});
}

TEST_F(AgentNoticeTest, WorkersAreAskedToStopOnceUnlessTheTimeIsEarlier) {
  Run();
  EXPECT_EQ(AskToStop(seconds(40)), Words{"ask for snapshot r0, stop at 1040000"});
  EXPECT_THAT(Said(),
              HasSubstr("asking the workers of round 0 to stop after a snapshot, within 40 s: because"));
  EXPECT_EQ(AskToStop(seconds(40)), Words{});
  EXPECT_EQ(AskToStop(seconds(10)), Words{"ask for snapshot r0, stop at 1010000"});
}

TEST_F(AgentNoticeTest, AnExitByItsSignalIsNoFailure) {
  Run();
  AskToStop(seconds(40));
  EXPECT_EQ(Ended(0, Signaled{SIGUSR1}), Words{});
  EXPECT_EQ(Ended(1, Exited{0}), Words{"kill"});
  EXPECT_EQ(Gone(), Words{"succeeded r0 by signal"});
}

TEST_F(AgentNoticeTest, TheSameHoldsForTheExitOfAShell) {
  Run();
  Notice(seconds(60));  // the signal may reach the workers before the coordinator's request
  EXPECT_EQ(Ended(0, Exited{128 + SIGUSR1}), Words{});
  EXPECT_EQ(Ended(1, Exited{128 + SIGUSR1}), Words{"kill"});
  EXPECT_EQ(Gone(), Words{"succeeded r0 by signal"});
}

TEST_F(AgentNoticeTest, OtherExitsAreFailures) {
  Run();
  EXPECT_EQ(Ended(0, Signaled{SIGUSR1}), (Words{"failed r0", "SIGTERM"})) << "without a notice";
  Ended(1, Signaled{SIGTERM});
  EXPECT_EQ(Gone(), (Words{"report", "ready r0"}));
  Start(1);
  Step(SnapshotWanted{.round = Round(1), .reason = "because", .stop_within = seconds(40)});
  EXPECT_EQ(Ended(0, Signaled{SIGKILL}), (Words{"failed r1", "SIGTERM"}));
}

TEST_F(AgentNoticeTest, ASnapshotCountsAfterTheExitOfTheWorkers) {
  Run();
  AskToStop(seconds(40));
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  EXPECT_EQ(Step(SnapshotReported{Round(0), 4}), Words{}) << "older than the request";
  EXPECT_EQ(Step(SnapshotReported{Round(0), 6}), Words{"snapshot r0 step 6"});
}

TEST_F(AgentNoticeTest, AWorkerThatParksHasNotFailed) {
  Run();
  Step(WorkerSurvives{LocalRank(0)});
  AskToStop(seconds(40));
  EXPECT_EQ(Step(WorkerParked{LocalRank(0), Round(0), "stopped"}),
            (Words{"parked r0", "tell 0 r0 is over", "SIGTERM except 0"}));
  EXPECT_EQ(Ended(1, Signaled{SIGTERM}), Words{"kill except 0"});
  EXPECT_EQ(Gone(), Words{"ready r0"}) << "without a report of a failure";
}

TEST_F(AgentNoticeTest, TheNodeLeavesByItselfIfTheCoordinatorDoesNotStopIt) {
  Run();
  Notice(seconds(60));
  EXPECT_EQ(Until(), seconds(45));
  Pass(seconds(45));
  EXPECT_EQ(Step(AgentTick{}), (Words{"leaving", "SIGTERM"}));
  EXPECT_THAT(
      Said(),
      HasSubstr("the notice of pre-emption ends in 15 s, and the coordinator has not dismissed this node"));
  EXPECT_EQ(Until(), seconds(13)) << "the notice bounds the grace period";
  Pass(seconds(13));
  EXPECT_EQ(Step(AgentTick{}), Words{"kill"});
  EXPECT_THAT(Said(),
              HasSubstr("2 workers did not exit within 13 s, before the end of the notice: sending SIGKILL"));
  Ended(0, Signaled{SIGKILL});
  Ended(1, Signaled{SIGKILL});
  EXPECT_EQ(Gone(), (Words{"left", "exit 75"}));
  EXPECT_EQ(End(), EndReason::kPreempted);
}

TEST_F(AgentNoticeTest, WithoutWorkersTheNodeLeavesAtTheEnd) {
  Join();
  Notice(seconds(60));
  EXPECT_EQ(Until(), seconds(58));
  Pass(seconds(58));
  EXPECT_EQ(Step(AgentTick{}), (Words{"left", "exit 75"}));
}

TEST_F(AgentNoticeTest, AnEarlierEndCutsTheGracePeriodShort) {
  Run();
  Notice(seconds(60));
  Stop(0);
  EXPECT_EQ(Until(), seconds(30));
  Notice(seconds(10));
  EXPECT_EQ(Until(), seconds(9));
}

TEST_F(AgentNoticeTest, ANodeThatIsCutOffDoesNotJoinAgain) {
  Run();
  Notice(seconds(60));
  EXPECT_EQ(Lose(), Words{"SIGTERM"});
  Ended(0, Signaled{SIGTERM});
  EXPECT_EQ(Ended(1, Signaled{SIGTERM}), Words{"kill"});
  EXPECT_EQ(Gone(), Words{"exit 75"});
  EXPECT_EQ(End(), EndReason::kPreempted);
}

TEST_F(AgentNoticeTest, EndsTheSearchForTheCoordinator) {
  Join();
  EXPECT_EQ(Lose(), Words{"rejoin 6000"});
  EXPECT_EQ(Notice(seconds(60)), Words{"exit 75"});
}

TEST_F(AgentNoticeTest, OfTheCoordinatorBoundsTheGracePeriodToo) {
  Run();
  Step(
      SnapshotWanted{.round = Round(0), .reason = "because", .stop_within = seconds(5), .left = seconds(20)});
  Pass(seconds(6));
  Stop(0);
  EXPECT_EQ(Until(), seconds(12));
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  Gone();
  EXPECT_EQ(Dismiss(Dismissal::kPreempted), Words{"exit 75"});
}

// The coordinator's message may arrive after the fence has fired.
TEST_F(AgentNoticeTest, OfTheCoordinatorHoldsForANodeThatIsCutOff) {
  Run();
  Lose();
  Step(SnapshotWanted{.round = Round(0), .reason = "because", .left = seconds(20)});
  EXPECT_EQ(Until(), seconds(18));
  Ended(0, Signaled{SIGTERM});
  Ended(1, Signaled{SIGTERM});
  EXPECT_EQ(Gone(), Words{"exit 75"});
}

TEST_F(AgentNoticeTest, OfTheCoordinatorBoundsTheGracePeriodOfAnAgentThatEnds) {
  Run();
  Signal(SIGTERM);
  EXPECT_EQ(Step(SnapshotWanted{.round = Round(0), .reason = "because", .left = seconds(10)}), Words{});
  EXPECT_EQ(Until(), seconds(9));
}

TEST_F(AgentNoticeTest, WithoutATimeToStopTheWorkersAreNotAsked) {
  Run();
  EXPECT_EQ(Step(SnapshotWanted{.round = Round(0), .reason = "because", .left = seconds(60)}), Words{});
  EXPECT_EQ(Until(), seconds(45));
}

TEST_F(AgentNoticeTest, ANoticeDuringTheEndOfTheAgentChangesOnlyTheGracePeriod) {
  Run();
  Signal(SIGTERM);
  EXPECT_EQ(Notice(seconds(10)), Words{});
  EXPECT_EQ(Until(), seconds(9));
}

}  // namespace
}  // namespace ddprun
