#include "rendezvous/core/restart_decision.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr JobRules kThree{.max_restarts = 3, .min_uptime = seconds(10), .max_restarts_without_progress = 2};

TEST(FurthestStepTest, CountsRestartsWithoutProgress) {
  FurthestStep furthest;
  furthest.Restarted();
  furthest.Restarted();
  EXPECT_EQ(furthest.vain_restarts(), 0);  // progress is unknown, because no worker has reported a step
  furthest.Reported(5);
  EXPECT_EQ(furthest.vain_restarts(), 0);
  furthest.Restarted();
  EXPECT_EQ(furthest.vain_restarts(), 1);
  furthest.Reported(5);
  EXPECT_EQ(furthest.vain_restarts(), 1);
  furthest.Restarted();
  EXPECT_EQ(furthest.vain_restarts(), 2);
  furthest.Reported(6);
  EXPECT_EQ(furthest.vain_restarts(), 0);
  furthest.Restarted();
  EXPECT_EQ(furthest.vain_restarts(), 1);
}

TEST(RestartDecisionTest, FailuresCostRestartsUntilNoneAreLeft) {
  const Failure failure{.uptime = seconds(60)};
  const RestartDecision third = DecideRestart(kThree, failure, 2, {}, 0);
  EXPECT_EQ(third.cost, Cost::kRestart);
  EXPECT_EQ(ToText(third.why), "restart 3 of 3");
  const RestartDecision fourth = DecideRestart(kThree, failure, 3, {}, 0);
  EXPECT_EQ(fourth.cost, Cost::kJob);
  EXPECT_EQ(ToText(fourth.why), "all 3 restarts are used up");
  EXPECT_EQ(DecideRestart({.max_restarts = 0}, failure, 0, {}, 0).cost, Cost::kJob);
}

TEST(RestartDecisionTest, AStuckWorkerEndsTheJob) {
  const RestartDecision decision =
      DecideRestart(kThree, {.exit = Stuck{"in state D"}, .uptime = seconds(60), .step = 7}, 0, {}, 0);
  EXPECT_EQ(decision.cost, Cost::kJob);
  EXPECT_THAT(ToText(decision.why), HasSubstr("stuck"));
}

TEST(RestartDecisionTest, FailuresThatFollowedFromALostNodeAreFree) {
  Failure failure{.origin = FailureOrigin::kFollowsAnother, .uptime = seconds(1)};
  EXPECT_EQ(DecideRestart(kThree, failure, 3, {}, 1).cost, Cost::kNothing);
  EXPECT_EQ(DecideRestart(kThree, failure, 3, {}, 0).cost, Cost::kJob);
  failure.origin = FailureOrigin::kOwn;
  EXPECT_EQ(DecideRestart(kThree, failure, 3, {}, 1).cost, Cost::kJob);
}

TEST(RestartDecisionTest, AWorkerThatFailsBeforeMinUptimeEndsTheJob) {
  Failure failure{.uptime = milliseconds(9999)};
  const RestartDecision decision = DecideRestart(kThree, failure, 0, {}, 0);
  EXPECT_EQ(decision.cost, Cost::kJob);
  EXPECT_THAT(ToText(decision.why),
              HasSubstr("failed after 9 s, before its first step and in less than 10 s"));
  failure.step = 0;
  EXPECT_EQ(DecideRestart(kThree, failure, 0, {}, 0).cost, Cost::kRestart);
  failure = {.uptime = seconds(10)};
  EXPECT_EQ(DecideRestart(kThree, failure, 0, {}, 0).cost, Cost::kRestart);
  failure = {};  // unknown uptime
  EXPECT_EQ(DecideRestart(kThree, failure, 0, {}, 0).cost, Cost::kRestart);
}

TEST(RestartDecisionTest, AJobWithoutProgressEnds) {
  const Failure failure{.uptime = seconds(60), .step = 57};
  FurthestStep furthest;
  furthest.Reported(57);
  furthest.Restarted();
  EXPECT_EQ(DecideRestart(kThree, failure, 1, furthest, 0).cost, Cost::kRestart);
  furthest.Restarted();
  const RestartDecision decision = DecideRestart(kThree, failure, 2, furthest, 0);
  EXPECT_EQ(decision.cost, Cost::kJob);
  EXPECT_THAT(ToText(decision.why), HasSubstr("2 restarts in a row have not brought the job beyond step 57"));
  EXPECT_EQ(DecideRestart({.max_restarts = 3}, failure, 2, furthest, 0).cost, Cost::kRestart);
}

TEST(LossStreakTest, EachLossWithoutProgressLengthensThePause) {
  LossStreak streak;
  for (const int pause : {0, 1, 2, 4, 8, 16, 30, 30}) {
    streak.Lost(seconds(3), std::nullopt);
    EXPECT_EQ(streak.pause(), seconds(pause));
  }
  EXPECT_EQ(streak.count(), 8);
}

TEST(LossStreakTest, AFurtherStepIsProgress) {
  LossStreak streak;
  streak.Lost(seconds(3), 10);
  streak.Lost(seconds(3), 10);
  EXPECT_EQ(streak.count(), 2);
  streak.Lost(seconds(3), 11);
  EXPECT_EQ(streak.count(), 1);
}

TEST(LossStreakTest, ALongRoundIsProgress) {
  LossStreak streak;
  streak.Lost(seconds(3), std::nullopt);
  streak.Lost(seconds(60), std::nullopt);
  EXPECT_EQ(streak.count(), 1);
}

}  // namespace
}  // namespace ddprun
