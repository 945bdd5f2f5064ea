#include "launcher/agent/agent_machine.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = AgentMachine::State;

// Orders, one short word each; what is only said is left out.
std::string Word(const AgentEffect& effect) {
  struct Visitor {
    std::string operator()(const StartWorkers& e) {
      return absl::StrCat("start r", e.assignment.round.value());
    }
    std::string operator()(const SignalWorkers& e) { return SignalName(e.signo); }
    std::string operator()(const KillWorkers&) { return "kill"; }
    std::string operator()(const SendWorkersFailed& e) { return absl::StrCat("failed r", e.round.value()); }
    std::string operator()(const SendWorkersSucceeded& e) {
      return absl::StrCat("succeeded r", e.round.value());
    }
    std::string operator()(const SendReady& e) { return absl::StrCat("ready r", e.round.value()); }
    std::string operator()(const SendLeave&) { return "leave"; }
    std::string operator()(const ReportFailures&) { return "report"; }
    std::string operator()(const Tell&) { return ""; }
    std::string operator()(const Finish& e) { return absl::StrCat("exit ", e.exit_code); }
  };
  return std::visit(Visitor(), effect);
}

class AgentMachineTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  Words Step(const AgentEvent& event) {
    last_ = machine_.Step(event, now_);
    Words words;
    for (const AgentEffect& e : last_) {
      if (std::string w = Word(e); !w.empty()) words.push_back(w);
    }
    return words;
  }
  Words Start(int round) {
    return Step(RoundStarted{{.round = Round(round), .first_rank = Rank(4), .world_size = 6}, "all joined"});
  }
  Words Stop(int round) { return Step(RoundStopped{Round(round), "a peer failed"}); }
  Words Ended(int local_rank, ExitInfo exit) { return Step(WorkerEnded{LocalRank(local_rank), exit}); }
  Words Gone() { return Step(WorkersGone{}); }
  Words Signal(int signo) { return Step(SignalReceived{signo}); }

  AgentMachine machine_{{.nproc = 2, .host = "node1", .grace = seconds(30)}};
  TimePoint now_{seconds(1000)};
  AgentEffects last_;
};

TEST_F(AgentMachineTest, SuccessIsTheSweepThenTheNewsThenTheEnd) {
  EXPECT_THAT(Start(0), ElementsAre("start r0"));
  EXPECT_THAT(Ended(1, Exited{0}), IsEmpty());
  EXPECT_THAT(Ended(0, Exited{0}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("succeeded r0"));
  EXPECT_THAT(Step(Dismissed{absl::OkStatus()}), ElementsAre("exit 0"));
  EXPECT_EQ(machine_.state(), State::kFinished);
}

TEST_F(AgentMachineTest, AFailureIsToldAtOnceAndTheOthersAreStopped) {
  Start(3);
  EXPECT_THAT(Ended(1, Signaled{SIGKILL, false}), ElementsAre("failed r3", "SIGTERM"));
  EXPECT_THAT(std::get<SendWorkersFailed>(last_[0]).cause, HasSubstr("rank 5 (local_rank 1) on node1"));
  EXPECT_THAT(Stop(3), IsEmpty());  // the coordinator's order crosses
  EXPECT_THAT(Ended(0, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r3"));
  EXPECT_THAT(Start(4), ElementsAre("start r4"));
}

TEST_F(AgentMachineTest, TheCauseSaysHowFarTheWorkerHadCome) {
  Start(0);
  Step(WorkerEnded{LocalRank(0), Exited{3}, "after step 57"});
  EXPECT_EQ(std::get<SendWorkersFailed>(last_[0]).cause,
            "rank 4 (local_rank 0) on node1 failed: exit code 3, after step 57");
}

TEST_F(AgentMachineTest, AStopAfterReadyIsNotAnsweredTwice) {
  Start(0);
  Ended(0, Exited{1});
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Gone(), ElementsAre("report", "ready r0"));
  EXPECT_THAT(Stop(0), IsEmpty());
}

TEST_F(AgentMachineTest, WorkersDeafToSigtermAreKilledAfterTheGracePeriod) {
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

TEST_F(AgentMachineTest, AStopOfANodeThatHasSucceededIsAnsweredAtOnce) {
  Start(0);
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  Gone();
  EXPECT_THAT(Stop(0), ElementsAre("ready r0"));
}

TEST_F(AgentMachineTest, AStopDuringTheSweepOvertakesSuccess) {
  Start(0);
  Ended(0, Exited{0});
  Ended(1, Exited{0});
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("ready r0"));
}

TEST_F(AgentMachineTest, AStopOfAnotherRoundIsIgnored) {
  Start(1);
  EXPECT_THAT(Stop(0), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kRunning);
}

TEST_F(AgentMachineTest, ASignalIsForwardedAndASecondKills) {
  Start(0);
  EXPECT_THAT(Signal(SIGINT), ElementsAre("leave", "SIGINT"));
  EXPECT_THAT(Signal(SIGINT), ElementsAre("kill"));
  EXPECT_THAT(Signal(SIGINT), IsEmpty());
  EXPECT_THAT(Gone(), ElementsAre("exit 1"));
  EXPECT_THAT(Signal(SIGINT), IsEmpty());
}

TEST_F(AgentMachineTest, ASignalWithoutWorkersEndsAtOnce) {
  EXPECT_THAT(Signal(SIGTERM), ElementsAre("leave", "exit 1"));
}

TEST_F(AgentMachineTest, ASignalWhileStoppingForTheNextRoundEndsTheAgentInstead) {
  Start(0);
  Stop(0);
  EXPECT_THAT(Signal(SIGTERM), ElementsAre("leave", "SIGTERM"));
  Ended(0, Signaled{SIGTERM, false});
  EXPECT_THAT(Ended(1, Signaled{SIGTERM, false}), ElementsAre("kill"));
  EXPECT_THAT(Gone(), ElementsAre("exit 1"));
}

TEST_F(AgentMachineTest, WorkersEndedByOurSignalAreNoFailure) {
  Start(0);
  Signal(SIGTERM);
  EXPECT_THAT(Ended(0, Exited{1}), IsEmpty());
}

TEST_F(AgentMachineTest, ALostCoordinatorEndsWorkersThenAgent) {
  Start(0);
  EXPECT_THAT(Step(CoordinatorLost{"connection reset"}), ElementsAre("SIGTERM"));
  Ended(0, Signaled{SIGTERM, false});
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Gone(), ElementsAre("exit 1"));
}

TEST_F(AgentMachineTest, UsedUpRestartsEndTheAgentAfterItsWorkers) {
  Start(0);
  Ended(0, Exited{7});
  EXPECT_THAT(Step(Dismissed{absl::ResourceExhaustedError("no restart left")}), IsEmpty());
  Ended(1, Signaled{SIGTERM, false});
  EXPECT_THAT(Gone(), ElementsAre("report", "exit 1"));
}

TEST_F(AgentMachineTest, ACoordinatorThatGoesAfterItsLastWordIsNotLost) {
  Start(0);
  Step(Dismissed{absl::FailedPreconditionError("the job is closed")});
  Step(CoordinatorLost{"it hung up"});
  EXPECT_THAT(last_, IsEmpty());  // Nothing is said either.
}

TEST_F(AgentMachineTest, AStartThatCrossesTheGoodbyeStartsNothing) {
  Signal(SIGTERM);
  EXPECT_THAT(Start(0), IsEmpty());
}

TEST_F(AgentMachineTest, AStartWhileWorkersRunIsThePeersBug) {
  Start(0);
  EXPECT_THAT(Start(1), ElementsAre("leave", "SIGTERM"));
}

}  // namespace
}  // namespace ddprun
