// Workers that survive the end of their round, as AgentMachine handles them.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = AgentMachine::State;

// Two workers, which ask to survive.
class AgentSurvivalTest : public AgentMachineTest {
 protected:
  Words Ask(int local_rank) { return Step(WorkerSurvives{LocalRank(local_rank)}); }
  Words Disconnect(int local_rank) { return Step(WorkerSurvives{LocalRank(local_rank), /*asks=*/false}); }
  Words Park(int local_rank, int round) {
    return Step(WorkerParked{LocalRank(local_rank), Round(round), "rank 2 of round 0 is gone"});
  }
  Words StopForGood(int round) {
    return Step(RoundStopped{Round(round), "enough", /*no_round_follows=*/true});
  }
  Words Tick() { return Step(AgentTick{}); }

  void StartBoth(int round) {
    Start(round);
    Ask(0);
    Ask(1);
  }
  // Worker 0 is killed, worker 1 parks, and the node is ready.
  void OneParks(int round) {
    StartBoth(round);
    Ended(0, Signaled{SIGKILL, false});
    Park(1, round);
    Gone();
    ASSERT_EQ(machine_.state(), State::kParked);
  }
  void BothPark(int round) {
    StartBoth(round);
    Stop(round);
    Park(0, round);
    Park(1, round);
    ASSERT_EQ(machine_.state(), State::kParked);
  }
};

TEST_F(AgentSurvivalTest, AWorkerThatAsksIsAnsweredOnce) {
  Start(0);
  EXPECT_THAT(Ask(1), ElementsAre("tell 1 r0"));
  EXPECT_THAT(Ask(1), IsEmpty());
}

TEST_F(AgentSurvivalTest, AWorkerThatAsksWhileItsRoundEndsIsNotAnswered) {
  Start(0);
  Stop(0);
  EXPECT_THAT(Ask(1), IsEmpty());
  EXPECT_THAT(Park(1, 0), IsEmpty());
  Ended(0, Signaled{SIGTERM, false});
  EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
}

TEST_F(AgentSurvivalTest, TheOthersParkWhenAWorkerFails) {
  StartBoth(0);
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), ElementsAre("failed r0", "tell 1 r0 is over"));
  EXPECT_THAT(Park(1, 0), ElementsAre("kill except 1"));  // what worker 0 has started
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r0"));
  EXPECT_EQ(machine_.state(), State::kParked);
  EXPECT_EQ(machine_.alive(), 1);
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  EXPECT_THAT(Start(1), ElementsAre("start r1 keep 1", "tell 1 r1"));
  EXPECT_EQ(machine_.alive(), 2);
}

TEST_F(AgentSurvivalTest, OnlyWorkersThatHaveNotAskedGetASignal) {
  Start(0);
  Ask(1);
  EXPECT_THAT(Stop(0), ElementsAre("tell 1 r0 is over", "SIGTERM except 1"));
  EXPECT_THAT(Park(1, 0), IsEmpty());
  EXPECT_THAT(Ended(0, Signaled{SIGTERM, false}), ElementsAre("kill except 1"));
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
}

TEST_F(AgentSurvivalTest, IfAllHaveParkedNothingIsKilled) {
  StartBoth(0);
  EXPECT_THAT(Stop(0), ElementsAre("tell 0 1 r0 is over"));
  EXPECT_THAT(Park(0, 0), IsEmpty());
  EXPECT_THAT(Park(1, 0), ElementsAre("ready r0"));
  EXPECT_THAT(Start(1), ElementsAre("start r1 keep 0 1", "tell 0 1 r1"));
  // They need not ask again.
  EXPECT_THAT(Stop(1), ElementsAre("tell 0 1 r1 is over"));
}

// A cut between two nodes ends a round in which no process dies.
TEST_F(AgentSurvivalTest, AWorkerThatParksUnaskedHasFailed) {
  StartBoth(0);
  EXPECT_THAT(Park(1, 0), ElementsAre("parked r0", "tell 0 1 r0 is over"));
  EXPECT_EQ(std::get<SendWorkersFailed>(last_[0]).parked, "rank 2 of round 0 is gone");
  EXPECT_THAT(Park(0, 0), ElementsAre("report", "ready r0"));
}

TEST_F(AgentSurvivalTest, AnEarlierRoundsParkedDoesNotCount) {
  BothPark(0);
  Start(1);
  EXPECT_THAT(Park(0, 0), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kRunning);
  Stop(1);
  EXPECT_THAT(Park(0, 0), IsEmpty());
  EXPECT_THAT(Park(1, 1), IsEmpty());
  EXPECT_THAT(Park(0, 1), ElementsAre("ready r1"));
}

TEST_F(AgentSurvivalTest, AWorkerThatDoesNotParkIsKilledAfterTheGracePeriod) {
  StartBoth(0);
  Stop(0);
  Park(1, 0);
  now_ += seconds(30);
  EXPECT_EQ(machine_.NextDeadline(), now_);
  EXPECT_THAT(Tick(), ElementsAre("kill except 1"));
  EXPECT_THAT(Said(), HasSubstr("1 worker did not exit or park within 30 s"));
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
  EXPECT_THAT(Start(1), ElementsAre("start r1 keep 1", "tell 1 r1"));
}

TEST_F(AgentSurvivalTest, AWorkerThatParksWhileTheOthersAreKilledMayBeKilledToo) {
  StartBoth(0);
  Stop(0);
  now_ += seconds(30);
  EXPECT_THAT(Tick(), ElementsAre("kill"));
  EXPECT_THAT(Park(1, 0), IsEmpty());  // the kill is under way and does not spare it
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
  EXPECT_EQ(machine_.alive(), 0);
  EXPECT_THAT(Start(1), ElementsAre("start r1"));
}

TEST_F(AgentSurvivalTest, IfASparedWorkerEndsDuringTheKillWhatItHasStartedIsKilledToo) {
  StartBoth(0);
  Ended(0, Exited{1});
  EXPECT_THAT(Park(1, 0), ElementsAre("kill except 1"));
  EXPECT_THAT(Ended(1, Exited{1}), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r0"));
  EXPECT_EQ(machine_.state(), State::kIdle);
}

TEST_F(AgentSurvivalTest, AParkedWorkerThatLosesItsConnectionDuringTheKillIsStopped) {
  StartBoth(0);
  Ended(0, Exited{1});
  Park(1, 0);
  EXPECT_THAT(Disconnect(1), ElementsAre("SIGTERM"));
  EXPECT_THAT(Gone(), IsEmpty());  // it has its grace period
  now_ += seconds(30);
  EXPECT_THAT(Tick(), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r0"));
  EXPECT_EQ(machine_.state(), State::kIdle);
}

TEST_F(AgentSurvivalTest, AWorkerThatHasDisconnectedIsStoppedAsIfItHadNotAsked) {
  StartBoth(0);
  EXPECT_THAT(Disconnect(0), IsEmpty());
  EXPECT_THAT(Stop(0), ElementsAre("tell 1 r0 is over", "SIGTERM except 1"));
  EXPECT_THAT(Disconnect(1), ElementsAre("SIGTERM except 0"));  // worker 0 has got it
}

TEST_F(AgentSurvivalTest, AParkedWorkerThatEndsIsReplaced) {
  BothPark(0);
  EXPECT_THAT(Ended(0, Signaled{SIGKILL, false}), ElementsAre("kill except 1"));
  EXPECT_THAT(Said(), HasSubstr("local rank 0, which had parked, ended: SIGKILL"));
  EXPECT_THAT(Gone(), IsEmpty());  // the node has been ready before
  EXPECT_THAT(Start(1), ElementsAre("start r1 keep 1", "tell 1 r1"));
}

TEST_F(AgentSurvivalTest, AStartWaitsUntilWhatAParkedWorkerHasStartedIsKilled) {
  BothPark(0);
  EXPECT_THAT(Disconnect(1), ElementsAre("kill except 0"));
  EXPECT_THAT(Start(1), IsEmpty());
  EXPECT_THAT(Ended(1, Signaled{SIGKILL, false}), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("start r1 keep 0", "tell 0 r1"));
}

TEST_F(AgentSurvivalTest, AStopOfAStartThatWaitsIsAnswered) {
  BothPark(0);
  Disconnect(1);
  Start(1);
  EXPECT_THAT(Stop(1), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("kill"));  // worker 0 has missed round 1
  EXPECT_THAT(Gone(), ElementsAre("ready r1"));
  EXPECT_EQ(machine_.state(), State::kIdle);
}

TEST_F(AgentSurvivalTest, WhenAllParkedWorkersHaveEndedTheNodeIsIdle) {
  OneParks(0);
  Ended(1, Exited{0});
  EXPECT_THAT(Gone(), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kIdle);
  EXPECT_THAT(Dismiss(Dismissal::kStopped), ElementsAre("exit 1"));
}

TEST_F(AgentSurvivalTest, DismissedWhileTheLastParkedWorkerIsSwept) {
  OneParks(0);
  EXPECT_THAT(Ended(1, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Dismiss(Dismissal::kStopped), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("exit 1"));
}

// A spare: a round has passed without this node, so its workers lack the steps of that round.
TEST_F(AgentSurvivalTest, WorkersThatHaveMissedARoundAreReplaced) {
  BothPark(3);
  EXPECT_THAT(Start(5), ElementsAre("kill"));
  EXPECT_THAT(Said(), HasSubstr("round 5 follows"));
  EXPECT_THAT(Gone(), ElementsAre("start r5"));
}

TEST_F(AgentSurvivalTest, NoRoundFollows) {
  StartBoth(0);
  EXPECT_THAT(StopForGood(0), ElementsAre("tell 0 1 r0 is over, the last", "SIGTERM"));
  EXPECT_THAT(Park(0, 0), IsEmpty());  // parked or not, it has to exit
  Ended(0, Exited{0});
  EXPECT_THAT(Ended(1, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
}

TEST_F(AgentSurvivalTest, ThatNoRoundFollowsBecomesKnownLater) {
  Start(0);
  Ask(1);
  Stop(0);
  now_ += seconds(10);
  EXPECT_THAT(StopForGood(0), ElementsAre("tell 1 r0 is over, the last", "SIGTERM except 0"));
  EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(30));
  EXPECT_THAT(StopForGood(0), IsEmpty());
}

struct EndCase {
  const char* name;
  AgentEvent event;
  bool at_once;
};
class EndOfSurvivalTest : public AgentSurvivalTest, public ::testing::WithParamInterface<EndCase> {
 protected:
  // Checks the orders for worker 1, which is parked, alone. If the workers are not killed at once, it has a grace period.
  void ExpectStopped() {
    const Words words = Step(GetParam().event);
    EXPECT_EQ(machine_.state(), State::kStopping);
    if (GetParam().at_once) {
      EXPECT_THAT(words, ::testing::Contains("kill"));
    } else {
      EXPECT_THAT(words, ::testing::Contains("tell 1 r0 is over, the last"));
      EXPECT_THAT(words, ::testing::Contains(HasSubstr("SIGTERM")));
      EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(30));
      EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
    }
  }
};

TEST_P(EndOfSurvivalTest, OfAParkedWorker) {
  OneParks(0);
  ExpectStopped();
  Gone();
  EXPECT_EQ(machine_.alive(), 0);
  EXPECT_THAT(machine_.state(), ::testing::AnyOf(State::kFinished, State::kSeeking));
}

TEST_P(EndOfSurvivalTest, OfAWorkerThatIsSparedFromAKill) {
  StartBoth(0);
  Ended(0, Exited{1});
  EXPECT_THAT(Park(1, 0), ElementsAre("kill except 1"));
  Step(GetParam().event);
  const Words words = Gone();
  if (GetParam().at_once) {
    EXPECT_THAT(words, ElementsAre("kill"));
  } else {
    EXPECT_THAT(words, IsEmpty());
    EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(30));
    EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
  }
  Gone();
  EXPECT_THAT(machine_.state(), ::testing::AnyOf(State::kFinished, State::kSeeking));
}

TEST_P(EndOfSurvivalTest, WhileAStartWaits) {
  BothPark(0);
  Disconnect(0);
  Start(1);
  Step(GetParam().event);
  const Words words = Gone();
  EXPECT_THAT(words, ::testing::Not(::testing::Contains("start r1")));
  EXPECT_THAT(words, ::testing::Not(::testing::Contains("start r1 keep 1")));
  if (!GetParam().at_once) {
    EXPECT_THAT(Ended(1, Exited{0}), ElementsAre("kill"));
  }
  Gone();
  EXPECT_THAT(machine_.state(), ::testing::AnyOf(State::kFinished, State::kSeeking));
}

INSTANTIATE_TEST_SUITE_P(
    Events, EndOfSurvivalTest,
    ::testing::Values(EndCase{"Dismissed", Dismissed{Dismissal::kFailed, "no restart is left"}, false},
                      EndCase{"Drained", Dismissed{Dismissal::kDrained, "drained"}, false},
                      EndCase{"Evicted", Dismissed{Dismissal::kEvicted, "its lease expired"}, true},
                      EndCase{"Signal", SignalReceived{SIGTERM}, false},
                      EndCase{"Broken", AgentBroken{absl::InternalError("broken")}, false},
                      EndCase{"CoordinatorLost", CoordinatorLost{"reset"}, false},
                      EndCase{"Fenced", Fenced{}, true}),
    [](const auto& info) { return info.param.name; });

TEST_F(AgentSurvivalTest, ASecondSignalKillsParkedWorkersAtOnce) {
  OneParks(0);
  Signal(SIGINT);
  EXPECT_THAT(Signal(SIGINT), ElementsAre("kill"));
}

// The first signal also reaches workers that Stop has signalled before.
TEST_F(AgentSurvivalTest, ASignalReachesParkedAndStoppingWorkers) {
  Start(0);
  Ask(1);
  Stop(0);
  EXPECT_THAT(Signal(SIGINT),
              ElementsAre("leaving", "SIGINT except 1", "tell 1 r0 is over, the last", "SIGINT except 0"));
}

TEST_F(AgentSurvivalTest, AProcessThatCannotBeKilledEndsSurvival) {
  StartBoth(0);
  Ended(0, Exited{1});
  Park(1, 0);
  EXPECT_THAT(Step(WorkersGone{{"process 7 (state D)"}}),
              ElementsAre("leaving", "tell 1 r0 is over, the last", "SIGTERM"));
  EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("report", "left", "exit 75"));
}

}  // namespace
}  // namespace ddprun
