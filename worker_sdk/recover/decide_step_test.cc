// Tests DecideStep on standings that are written down. decide_step_worlds_test.cc has those that the protocol reaches.
#include "worker_sdk/recover/decide_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddprun/status.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kRound = 7;
constexpr StepAction kNothing = StepAction::kNothing, kApply = StepAction::kApply, kDrop = StepAction::kDrop;

Standing Survivor(int64_t step, int64_t prepared = -1, int64_t node = 0) {
  return {.previous_round = kRound - 1, .step = step, .prepared = prepared, .node = node};
}
Standing Joiner(int64_t node = 0) { return {.node = node}; }

Decision Decide(const std::vector<Standing>& standings, int64_t round = kRound) {
  const StatusOr<Decision> decision = DecideStep(round, standings);
  EXPECT_TRUE(decision.ok()) << decision.status();
  return decision.value_or(Decision());
}

TEST(DecideStepTest, WithoutAPreparedStepNothingChanges) {
  const Decision decision = Decide({Survivor(5), Survivor(5), Survivor(5)});
  EXPECT_EQ(decision.step, 5);
  EXPECT_EQ(decision.root, -1);
  EXPECT_THAT(decision.joiners, IsEmpty());
  EXPECT_THAT(decision.actions, ElementsAre(kNothing, kNothing, kNothing));
}

TEST(DecideStepTest, AStepThatASurvivorCommittedIsAppliedByTheOthers) {
  const Decision decision = Decide({Survivor(5, 6), Survivor(6), Survivor(5, 6)});
  EXPECT_EQ(decision.step, 6);
  EXPECT_THAT(decision.actions, ElementsAre(kApply, kNothing, kApply));
}

TEST(DecideStepTest, AStepThatAllHavePreparedIsApplied) {  // a dead rank may have committed it
  const Decision decision = Decide({Survivor(5, 6), Survivor(5, 6)});
  EXPECT_EQ(decision.step, 6);
  EXPECT_THAT(decision.actions, ElementsAre(kApply, kApply));
}

TEST(DecideStepTest, AStepThatASurvivorHasNotPreparedIsDropped) {
  const Decision decision = Decide({Survivor(5, 6), Survivor(5), Survivor(5, 6)});
  EXPECT_EQ(decision.step, 5);
  EXPECT_THAT(decision.actions, ElementsAre(kDrop, kNothing, kDrop));
}

// One rank has prepared the next step before another has committed this one: only a model without parameters allows that,
// because nothing is reduced.
TEST(DecideStepTest, OneRankAppliesWhileAnotherDrops) {
  const Decision decision = Decide({Survivor(5, 6), Survivor(6, 7)});
  EXPECT_EQ(decision.step, 6);
  EXPECT_THAT(decision.actions, ElementsAre(kApply, kDrop));
}

TEST(DecideStepTest, StepZeroIsState) {
  EXPECT_EQ(Decide({Survivor(0), Joiner()}).step, 0);
  EXPECT_EQ(Decide({Survivor(0, 1), Survivor(0, 1)}).step, 1);
}

TEST(DecideStepTest, JoinersGetTheStateOfTheLowestSurvivor) {
  const Decision decision = Decide({Joiner(2), Survivor(5, 6, 0), Joiner(0), Survivor(6, -1, 1)});
  EXPECT_EQ(decision.step, 6);
  EXPECT_EQ(decision.root, 1);
  EXPECT_THAT(decision.joiners, ElementsAre(0, 2));
  EXPECT_THAT(decision.actions, ElementsAre(kNothing, kApply, kNothing, kNothing));
}

TEST(DecideStepTest, TheRootIsOnTheNodeOfTheLowestJoinerIfASurvivorIs) {
  EXPECT_EQ(Decide({Survivor(5, -1, 0), Survivor(5, -1, 1), Survivor(5, -1, 1), Joiner(1), Joiner(0)}).root,
            1);
  EXPECT_EQ(Decide({Survivor(5, -1, 0), Joiner(0), Joiner(1), Survivor(5, -1, 1)}).root, 0);
}

TEST(DecideStepTest, WithoutSurvivorsNoRankHasState) {
  // New processes; processes that never had state; and those that have a step, but not from the round before.
  const Standing stateless = {.previous_round = kRound - 1, .step = -1};
  const Standing older = {.previous_round = kRound - 2, .step = 9, .prepared = 10};
  const Decision decision = Decide({Joiner(), stateless, older});
  EXPECT_EQ(decision.step, -1);
  EXPECT_EQ(decision.root, -1);
  EXPECT_THAT(decision.joiners, ElementsAre(0, 1, 2));
  EXPECT_THAT(decision.actions, ElementsAre(kNothing, kNothing, kDrop));
}

TEST(DecideStepTest, ARankThatMissedARoundIsAJoinerWhateverItsStep) {
  for (const int64_t step : {3, 6, 9}) {
    const Standing older = {.previous_round = kRound - 2, .step = step, .prepared = step + 1};
    const Decision decision = Decide({older, Survivor(5, 6), Survivor(6)});
    EXPECT_EQ(decision.step, 6);
    EXPECT_EQ(decision.root, 1);
    EXPECT_THAT(decision.joiners, ElementsAre(0));
    EXPECT_THAT(decision.actions, ElementsAre(kDrop, kApply, kNothing));
  }
}

TEST(DecideStepTest, APreparedStepWithoutStateIsDropped) {
  const Standing stateless = {.previous_round = kRound - 1, .step = -1, .prepared = 1};
  EXPECT_THAT(Decide({stateless, Survivor(4)}).actions, ElementsAre(kDrop, kNothing));
  EXPECT_EQ(Decide({stateless, stateless}).step, -1);
}

// -1 means "no round before", and is not the round before round 0.
TEST(DecideStepTest, InRoundZeroAllRanksAreJoiners) {
  const Standing counted = {.previous_round = -1, .step = 100};
  const Decision decision = Decide({counted, Joiner()}, 0);
  EXPECT_EQ(decision.step, -1);
  EXPECT_THAT(decision.joiners, ElementsAre(0, 1));
}

TEST(DecideStepTest, AWorldOfOneAppliesWhatItHasPrepared) {
  EXPECT_THAT(Decide({Survivor(5, 6)}).actions, ElementsAre(kApply));
  EXPECT_THAT(Decide({Joiner()}).joiners, ElementsAre(0));
}

TEST(DecideStepTest, StepsThatCannotBeAreErrors) {
  const auto error = [](const std::vector<Standing>& standings) {
    const Status status = DecideStep(kRound, standings).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
    return status.message();
  };
  const std::string prefix = "the steps of the survivors of round 6 cannot be reconciled: ";
  // Rank 1 has committed step 6, for which rank 0 must have been prepared.
  EXPECT_EQ(error({Survivor(5), Survivor(6)}),
            prefix + "rank 0 has step 5 and has prepared none, but rank 1 has step 6 and has prepared none");
  EXPECT_EQ(
      error({Survivor(8), Joiner(), Survivor(5, 6)}),
      prefix + "rank 2 has step 5 and has prepared step 6, but rank 0 has step 8 and has prepared none");
  EXPECT_EQ(
      error({Survivor(5), Survivor(6, 7)}),
      prefix + "rank 0 has step 5 and has prepared none, but rank 1 has step 6 and has prepared step 7");
  // The program has counted a step whose Finish failed, or has skipped one: the prepared update is not the next one.
  EXPECT_EQ(error({Survivor(5, 6), Survivor(6, 6)}), prefix + "rank 1 has step 6 and has prepared step 6");
  EXPECT_EQ(error({Survivor(5, 7)}), prefix + "rank 0 has step 5 and has prepared step 7");
  EXPECT_EQ(error({Survivor(5, 3)}), prefix + "rank 0 has step 5 and has prepared step 3");
}

}  // namespace
}  // namespace ddprun
