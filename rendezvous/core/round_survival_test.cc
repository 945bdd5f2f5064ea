// Rounds whose workers may survive them: what the nodes are told, and failures of workers that have parked.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two nodes, a and b, in round 0.
class RoundSurvivalTest : public RoundMachineTest {
 protected:
  void SetUp() override {
    Use({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .first_last_call = seconds(5)});
    Join("a");
    Join("b");
    ASSERT_EQ(machine_->round(), Round(0));
  }
  static Failure Parked() {
    return {.origin = FailureOrigin::kFollowsAnother,
            .cause = "rank 1 has parked: rank 0 of round 0 is gone",
            .exception = "rank 0 of round 0 is gone",
            .parked = true};
  }
};

TEST_F(RoundSurvivalTest, AWorkerThatParksUnaskedEndsItsRoundAndCostsARestart) {
  EXPECT_THAT(Failed("b", 0, Parked()), SizeIs(2));
  EXPECT_EQ(machine_->state(), RoundMachine::State::kDraining);
  Ready("a", 0, 200);
  Ready("b", 0, 201, {Parked()});
  EXPECT_EQ(machine_->restarts(), 1);
  EXPECT_THAT(Report()->groups, SizeIs(1));
  EXPECT_EQ(machine_->round(), Round(1));
}

TEST_F(RoundSurvivalTest, TheWorkerThatDiedIsTheCauseAndNotThoseThatParked) {
  Failed("b", 0, Parked());  // is faster than the report of node a
  const Failure killed{.exit = Signaled{SIGKILL, false}, .cause = "rank 0 failed: SIGKILL"};
  Failed("a", 0, killed);
  Ready("b", 0, 201, {Parked()});
  Ready("a", 0, 200, {killed});
  EXPECT_EQ(machine_->last_failure(), killed.cause);
  EXPECT_EQ(machine_->restarts(), 1);
}

// The workers of a node notice that others have parked before their agent gets the Stop.
TEST_F(RoundSurvivalTest, InARoundThatDidNotFailParkedWorkersAreNoFailures) {
  DrainNode("a");
  ASSERT_EQ(machine_->state(), RoundMachine::State::kDraining);
  EXPECT_THAT(Failed("b", 0, Parked()), IsEmpty());
  Ready("a", 0, 200, {Parked()});
  EXPECT_THAT(Ready("b", 0, 201, {Parked()}), Contains("b:start r1 node0/1 rank0/1 n0 addr-b:201"));
  EXPECT_EQ(machine_->restarts(), 0);
  EXPECT_EQ(machine_->last_failure(), "");
}

TEST_F(RoundSurvivalTest, OnlyTheNodeThatIsDrainedStopsForGood) {
  EXPECT_THAT(DrainNode("b"), ElementsAre("a:stop r0", "b:stop r0 for good"));
}

TEST_F(RoundSurvivalTest, ANodeThatIsStoppingIsToldThatItIsDrained) {
  Failed("a", 0);
  EXPECT_THAT(DrainNode("b"), ElementsAre("b:stop r0 for good"));
  EXPECT_THAT(DrainNode("b"), IsEmpty());
}

TEST_F(RoundSurvivalTest, AJobThatClosesStopsForGood) {
  EXPECT_THAT(CloseJob(), ElementsAre("a:stop r0 for good", "b:stop r0 for good"));
}

// A node that has parked its workers gets no second Stop; its Dismiss follows.
TEST_F(RoundSurvivalTest, AJobThatClosesInADrainTellsTheNodesThatAreStopping) {
  Failed("a", 0);
  Ready("a", 0, 200);
  EXPECT_THAT(CloseJob(), ElementsAre("b:stop r0 for good"));
  EXPECT_THAT(Ready("b", 0, 201), Contains("a:dismiss stopped"));
}

TEST_F(RoundSurvivalTest, TheStepOfReadyIsProgress) {
  Failed("a", 0);
  Step(NodeReady{.node = NodeId("a"), .round = Round(0), .store_port = 200, .step = 57});
  EXPECT_EQ(machine_->furthest_step(), 57);
}

}  // namespace
}  // namespace ddprun
