#include "launcher/agent/agent_machine.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = AgentMachine::State;

TEST_F(AgentMachineTest, SuccessIsReportedAfterTheSweepAndDismissalEndsTheAgent) {
  EXPECT_THAT(Start(0), ElementsAre("start r0"));
  EXPECT_THAT(Ended(1, Exited{0}), IsEmpty());
  EXPECT_THAT(Ended(0, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("succeeded r0"));
  EXPECT_THAT(Dismiss(Dismissal::kSucceeded), ElementsAre("exit 0"));
  EXPECT_EQ(machine_.state(), State::kFinished);
}

TEST_F(AgentMachineTest, AFailureIsSentImmediatelyAndStopsTheOtherWorkers) {
  Start(3);
  EXPECT_THAT(Ended(1, Signaled{SIGKILL, false}), ElementsAre("failed r3", "SIGTERM"));
  EXPECT_EQ(std::get<SendWorkersFailed>(last_[0]).local_rank, LocalRank(1));
  EXPECT_THAT(Stop(3), IsEmpty());  // The coordinator's Stop crosses the report.
  EXPECT_THAT(Ended(0, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r3"));
  EXPECT_THAT(Start(4), ElementsAre("start r4"));
}

TEST_F(AgentMachineTest, AStopAfterReadyIsNotAnswered) {
  Start(0);
  Ended(0, Exited{1});
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r0"));
  EXPECT_THAT(Stop(0), IsEmpty());
}

// --shutdown-timeout applies after each of these events.
struct StopCase {
  const char* name;
  AgentEvent event;
};
class GracePeriodTest : public AgentMachineTest, public ::testing::WithParamInterface<StopCase> {};

TEST_P(GracePeriodTest, PrecedesSigkill) {
  Start(0);
  Step(GetParam().event);
  EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(30));
  now_ += seconds(30);
  EXPECT_THAT(Step(AgentTick{}), ElementsAre("kill"));
}

INSTANTIATE_TEST_SUITE_P(
    All, GracePeriodTest,
    ::testing::Values(StopCase{"Failure", WorkerEnded{LocalRank(0), Exited{1}}},
                      StopCase{"ChangeOfMembership", RoundStopped{Round(0), "node2 has joined"}},
                      StopCase{"EndOfTheJob", Dismissed{Dismissal::kStopped, "because"}},
                      StopCase{"LostCoordinator", CoordinatorLost{"connection reset"}},
                      StopCase{"Signal", SignalReceived{SIGUSR1}},
                      StopCase{"BrokenAgent", AgentBroken{absl::InternalError("because")}}),
    [](const auto& info) { return info.param.name; });

TEST_F(AgentMachineTest, WorkersThatIgnoreSigtermAreKilledAfterTheGracePeriod) {
  Start(0);
  EXPECT_THAT(Stop(0), ElementsAre("SIGTERM"));
  ASSERT_EQ(machine_.NextDeadline(), now_ + seconds(30));
  now_ += seconds(29);
  EXPECT_THAT(Step(AgentTick{}), IsEmpty());
  now_ += seconds(1);
  EXPECT_THAT(Step(AgentTick{}), ElementsAre("kill"));
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
}

// A stopped process does not react to SIGTERM. The others have their grace period.
TEST_F(AgentMachineTest, AWorkerBecauseOfWhichTheRoundStoodStillIsKilledAtOnce) {
  Start(0);
  EXPECT_THAT(Step(RoundStopped{.round = Round(0), .reason = "it hangs", .hung = {LocalRank(1)}}),
              ElementsAre("SIGTERM", "SIGKILL except 0"));
  EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(30));
}

TEST_F(AgentMachineTest, AStopAfterSuccessIsAnsweredImmediately) {
  Start(0);
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  Gone();
  EXPECT_THAT(Stop(0), ElementsAre("ready r0"));
}

TEST_F(AgentMachineTest, AStopDuringTheSweepReplacesSuccess) {
  Start(0);
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
}

TEST_F(AgentMachineTest, AStopForAnotherRoundIsIgnored) {
  Start(1);
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(AgentMachineTest, ASignalIsForwardedAndASecondSignalKillsTheWorkers) {
  Start(0);
  EXPECT_THAT(Signal(SIGINT), ElementsAre("leaving", "SIGINT"));
  EXPECT_THAT(Signal(SIGINT), ElementsAre("kill"));
  EXPECT_THAT(Signal(SIGINT), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("left", "exit 1"));
  EXPECT_THAT(Signal(SIGINT), IsEmpty());
}

TEST_F(AgentMachineTest, ASignalWithoutWorkersEndsTheAgentImmediately) {
  EXPECT_THAT(Signal(SIGTERM), ElementsAre("left", "exit 75"));
  EXPECT_EQ(End(), EndReason::kTerminated);
}

TEST_F(AgentMachineTest, ASignalWhileStoppingForTheNextRoundEndsTheAgent) {
  Start(0);
  Stop(0);
  EXPECT_THAT(Signal(SIGTERM), ElementsAre("leaving", "SIGTERM"));
  Ended(0, Signaled{SIGTERM, false});
  EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("left", "exit 75"));
}

TEST_F(AgentMachineTest, WorkersThatEndAfterASignalAreNotFailures) {
  Start(0);
  Signal(SIGTERM);
  EXPECT_THAT(Ended(0, Exited{1}), IsEmpty());
}

TEST_F(AgentMachineTest, AFailedJobEndsTheAgentAfterItsWorkers) {
  Start(0);
  Ended(0, Exited{7});
  EXPECT_THAT(Dismiss(Dismissal::kFailed), IsEmpty());
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Gone(), ElementsAre("report", "exit 1"));
}

TEST_F(AgentMachineTest, ADisconnectAfterDismissalIsExpected) {
  Start(0);
  Dismiss(Dismissal::kStopped);
  Step(CoordinatorLost{"connection closed"});
  EXPECT_THAT(last_, IsEmpty());  // not even a log line
}

TEST_F(AgentMachineTest, AStartAfterLeaveIsIgnored) {
  Signal(SIGTERM);
  EXPECT_THAT(Start(0), IsEmpty());
}

TEST_F(AgentMachineTest, AStartWhileWorkersRunEndsTheAgent) {
  Start(0);
  EXPECT_THAT(Start(1), ElementsAre("leaving", "SIGTERM"));
}

TEST_F(AgentMachineTest, AfterALostConnectionTheNodeStopsItsWorkersAndRejoins) {
  Start(0);
  EXPECT_THAT(Lose(), ElementsAre("SIGTERM"));
  EXPECT_THAT(Said(), HasSubstr("connection reset"));
  Ended(0, Signaled{SIGTERM, false});
  EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
  EXPECT_EQ(machine_.state(), State::kSeeking);
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  EXPECT_THAT(Step(Welcomed{}), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kIdle);
  EXPECT_THAT(Start(4), ElementsAre("start r4"));
}

TEST_F(AgentMachineTest, AFailedSearchForTheCoordinatorEndsTheAgent) {
  EXPECT_THAT(Lose(), ElementsAre("rejoin 6000"));
  EXPECT_THAT(Step(RejoinFailed{"connection refused"}), ElementsAre("exit 75"));
  EXPECT_EQ(End(), EndReason::kCoordinatorLost);
  EXPECT_THAT(Said(), HasSubstr("the coordinator is lost"));
  EXPECT_THAT(Said(), HasSubstr("connection reset"));
  EXPECT_THAT(Said(), HasSubstr("connection refused"));
  EXPECT_THAT(Said(), HasSubstr("Start the job again"));
}

TEST_F(AgentMachineTest, AnEvictedNodeKillsItsWorkersAndRejoins) {
  Start(0);
  EXPECT_THAT(Dismiss(Dismissal::kEvicted), ElementsAre("kill"));
  EXPECT_THAT(Lose(), IsEmpty());  // the old connection breaks
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
  EXPECT_THAT(Step(RejoinFailed{"no answer"}), ElementsAre("exit 75"));
  EXPECT_EQ(End(), EndReason::kEvicted);
}

TEST_F(AgentMachineTest, AWaitingNodeFollowsACoordinatorThatMoves) {
  EXPECT_THAT(Dismiss(Dismissal::kMoved), ElementsAre("rejoin 6000"));
  EXPECT_THAT(Said(), HasSubstr("because: this node joins again"));
  EXPECT_THAT(Lose(), IsEmpty());  // the new connection breaks, too
  now_ = *machine_.NextDeadline();
  EXPECT_THAT(Step(AgentTick{}), ElementsAre("rejoin 5900"));
  Step(Welcomed{});
  EXPECT_EQ(machine_.state(), AgentMachine::State::kIdle);
}

TEST_F(AgentMachineTest, ParkedWorkersEndWhenTheCoordinatorMoves) {
  Start(0);
  for (const int rank : {0, 1}) Step(WorkerSurvives{LocalRank(rank)});
  Stop(0);
  Step(WorkerParked{LocalRank(0), Round(0)});
  Step(WorkerParked{LocalRank(1), Round(0)});
  ASSERT_EQ(machine_.state(), AgentMachine::State::kParked);
  EXPECT_THAT(Dismiss(Dismissal::kMoved), ElementsAre("tell 0 1 r0 is over, the last", "SIGTERM"));
  Ended(0, Exited{0});
  EXPECT_THAT(Ended(1, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, ANodeThatEndsDoesNotFollowTheCoordinator) {
  Start(0);
  Signal(SIGTERM);
  EXPECT_THAT(Dismiss(Dismissal::kMoved), IsEmpty());
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  EXPECT_THAT(Gone(), ElementsAre("left", "exit 75"));
}

TEST_F(AgentMachineTest, TheJobMayBeOverWhileANodeSearches) {
  Lose();
  ASSERT_EQ(machine_.state(), AgentMachine::State::kSeeking);
  EXPECT_THAT(Dismiss(Dismissal::kFailed), ElementsAre("exit 1"));
  EXPECT_EQ(End(), EndReason::kJobFailed);
}

TEST_F(AgentMachineTest, TheSearchMayTakeLonger) {
  AgentMachine machine({.seek_limit = seconds(600)});
  const AgentEffects effects = machine.Step(CoordinatorLost{"it hung up"}, now_);
  EXPECT_EQ(std::get<Rejoin>(effects.back()).limit, seconds(600));
}

TEST_F(AgentMachineTest, AnEvictedWaitingNodeRejoinsImmediately) {
  EXPECT_THAT(Dismiss(Dismissal::kEvicted), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, ANodeEvictedWhileStoppingKillsItsWorkers) {
  Start(0);
  Stop(0);
  EXPECT_THAT(Dismiss(Dismissal::kEvicted), ElementsAre("kill"));
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, FencedWorkersAreNotFailures) {
  Start(0);
  EXPECT_THAT(Step(Fenced{}), ElementsAre("kill"));
  EXPECT_THAT(Said(), HasSubstr("5000 ms"));
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), IsEmpty());
  EXPECT_THAT(Ended(1, NeverStarted{absl::CancelledError()}), IsEmpty());
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, AFenceDuringTheGracePeriodKillsTheWorkersImmediately) {
  Start(0);
  Lose();
  EXPECT_THAT(Step(Fenced{}), ElementsAre("kill"));
  EXPECT_THAT(last_, testing::SizeIs(1));  // no log line, because the node was already cut off
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, AFenceAfterSuccessDiscardsTheSuccess) {
  Start(0);
  Ended(0, Exited{0});
  EXPECT_THAT(Ended(1, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Step(Fenced{}), IsEmpty());  // The sweep is in progress.
  EXPECT_THAT(Gone(), ElementsAre("rejoin 6000"));
}

TEST_F(AgentMachineTest, AFenceWithoutWorkersIsIgnored) {
  EXPECT_THAT(Step(Fenced{}), IsEmpty());
  EXPECT_THAT(Start(0), ElementsAre("start r0"));
}

TEST_F(AgentMachineTest, AFenceWhileTheAgentEndsOnlyKillsTheWorkers) {
  Start(0);
  Signal(SIGINT);
  EXPECT_THAT(Step(Fenced{}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("left", "exit 1"));
}

TEST_F(AgentMachineTest, ADismissalAppliesWhileTheNodeIsCutOff) {
  Start(0);
  Step(Fenced{});
  EXPECT_THAT(Dismiss(Dismissal::kSucceeded), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("exit 0"));
}

TEST_F(AgentMachineTest, ACutOffNodeIgnoresStartAndStop) {
  Start(0);
  Lose();
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_THAT(Start(1), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kStopping);
}

TEST_F(AgentMachineTest, ASignalWhileSeekingEndsTheAgentImmediately) {
  Lose();
  EXPECT_THAT(Signal(SIGTERM), ElementsAre("left", "exit 75"));
  EXPECT_EQ(End(), EndReason::kTerminated);
}

TEST_F(AgentMachineTest, ARejectedRejoinEndsTheAgent) {
  Lose();
  EXPECT_THAT(Dismiss(Dismissal::kRejected), ElementsAre("exit 1"));
}

TEST_F(AgentMachineTest, RejoinRetriesWithGrowingPausesUntilItsDeadline) {
  Lose();
  std::vector<int64_t> pauses;
  for (;;) {
    const Words words = Lose();
    if (!words.empty()) {
      EXPECT_THAT(words, ElementsAre("exit 75"));
      break;
    }
    ASSERT_TRUE(machine_.NextDeadline());
    pauses.push_back(ToMillis(*machine_.NextDeadline() - now_));
    EXPECT_THAT(Step(AgentTick{}), IsEmpty());  // too early
    now_ = *machine_.NextDeadline();
    ASSERT_THAT(Step(AgentTick{}), testing::SizeIs(1));
    EXPECT_GT(std::get<Rejoin>(last_[0]).limit, Duration::zero());
    EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  }
  EXPECT_THAT(pauses, ElementsAre(100, 200, 400, 800, 1600));
}

TEST_F(AgentMachineTest, RepeatedEvictionsLengthenThePause) {
  EXPECT_THAT(Dismiss(Dismissal::kEvicted), ElementsAre("rejoin 6000"));
  std::vector<int64_t> pauses;
  for (int i = 0; i < 8; ++i) {
    Step(Welcomed{});
    now_ += milliseconds(10);
    EXPECT_THAT(Dismiss(Dismissal::kEvicted), IsEmpty());
    pauses.push_back(ToMillis(*machine_.NextDeadline() - now_));
    now_ = *machine_.NextDeadline();
    EXPECT_THAT(Step(AgentTick{}), ElementsAre("rejoin 6000"));
  }
  EXPECT_THAT(pauses, ElementsAre(100, 200, 400, 800, 1600, 3200, 5000, 5000));
  // The pause is reset when the node has stayed in the job for a second.
  Step(Welcomed{});
  now_ += seconds(1);
  EXPECT_THAT(Dismiss(Dismissal::kEvicted), ElementsAre("rejoin 6000"));
  Step(Welcomed{});
  Dismiss(Dismissal::kEvicted);
  EXPECT_EQ(machine_.NextDeadline(), now_ + milliseconds(100));
}

TEST_F(AgentMachineTest, ARequestedSnapshotIsReportedOnce) {
  Start(2);
  EXPECT_THAT(Step(SnapshotReported{Round(2), 10}), IsEmpty());  // not requested
  EXPECT_THAT(Step(SnapshotWanted{Round(2), "node3 joins", 17}), ElementsAre("ask for snapshot r2"));
  EXPECT_THAT(Step(SnapshotReported{Round(2), 10}), IsEmpty());  // the same snapshot again
  EXPECT_THAT(Step(SnapshotReported{Round(2), 15}), IsEmpty());  // of an earlier step than requested
  EXPECT_THAT(Step(SnapshotReported{Round(1), 18}), IsEmpty());
  EXPECT_THAT(Step(SnapshotReported{Round(2), 18}), ElementsAre("snapshot r2 step 18"));
  EXPECT_THAT(Step(SnapshotReported{Round(2), 19}), IsEmpty());
}

TEST_F(AgentMachineTest, SnapshotsOfOtherRoundsAreIgnored) {
  Start(2);
  EXPECT_THAT(Step(SnapshotWanted{Round(1), "late", 0}), IsEmpty());
  Step(SnapshotWanted{Round(2), "node3 joins", 0});
  Ended(0, Exited{1});
  EXPECT_THAT(Step(SnapshotReported{Round(2), 5}), IsEmpty());
  EXPECT_THAT(Step(SnapshotWanted{Round(2), "node3 joins", 0}), IsEmpty());
  Ended(1, Signaled{SIGTERM, false});
  Gone();
  Start(3);
  EXPECT_THAT(Step(SnapshotReported{Round(3), 1}), IsEmpty());  // not requested in this round
}

TEST_F(AgentMachineTest, DismissalsMapToExitCodes) {
  const struct {
    Dismissal dismissal;
    EndReason reason;
    int exit_code;
  } kTable[] = {
      {Dismissal::kSucceeded, EndReason::kSucceeded, 0},
      {Dismissal::kDrained, EndReason::kDrained, 0},
      {Dismissal::kFailed, EndReason::kJobFailed, 1},
      {Dismissal::kRejected, EndReason::kRejected, 1},
      {Dismissal::kStopped, EndReason::kStopped, 1},
      {Dismissal::kJoinTimeout, EndReason::kJoinTimeout, 75},
      {Dismissal::kCoordinatorEnded, EndReason::kCoordinatorEnded, 75},
      {Dismissal::kPreempted, EndReason::kPreempted, 75},
  };
  for (const auto& row : kTable) {
    AgentMachine machine({.nproc = 1, .exit_codes = ExitCodes::kScheduler});
    const AgentEffects effects = machine.Step(Dismissed{row.dismissal, "because"}, now_);
    const auto& finish = std::get<Finish>(effects.back());
    EXPECT_EQ(finish.reason, row.reason);
    EXPECT_EQ(finish.exit_code, row.exit_code);
    EXPECT_EQ(effects.size(), row.dismissal == Dismissal::kSucceeded ? 1u : 2u);
  }
}

TEST_F(AgentMachineTest, ANodeWithAnUnkillableProcessLeavesTheJob) {
  Start(0);
  Ended(0, Exited{1});
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Step(WorkersGone{{"process 7 (python) is still alive, in state D"}}),
              ElementsAre("report", "left", "exit 75"));
  EXPECT_THAT(Said(), HasSubstr("process 7 (python)"));
  EXPECT_EQ(End(), EndReason::kBroken);
}

TEST_F(AgentMachineTest, AStuckWorkerIsReportedAsAFailure) {
  Start(0);
  Ended(0, Stuck{"nfs_wait"});
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Step(WorkersGone{{"process 7 (python) is still alive, in state D"}}),
              ElementsAre("report", "ready r0"));
}

TEST_F(AgentMachineTest, ABrokenNodeLeavesTheJob) {
  Start(0);
  EXPECT_THAT(Step(AgentBroken{absl::UnavailableError("the warden is gone")}),
              ElementsAre("leaving", "SIGTERM"));
  Ended(0, Signaled{SIGKILL, false});
  Ended(1, Signaled{SIGKILL, false});
  EXPECT_THAT(Gone(), ElementsAre("left", "exit 75"));
  EXPECT_EQ(End(), EndReason::kBroken);
}

}  // namespace
}  // namespace ddprun
