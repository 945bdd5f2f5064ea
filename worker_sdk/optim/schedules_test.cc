#include <gtest/gtest.h>

#include <cmath>

#include "ddprun/optim.h"

namespace ddprun {
namespace {

TEST(ScheduleTest, WarmupRisesLinearlyToOne) {
  EXPECT_EQ(Warmup(1, 4), 0.25);
  EXPECT_EQ(Warmup(3, 4), 0.75);
  EXPECT_EQ(Warmup(4, 4), 1);
  EXPECT_EQ(Warmup(1000000, 4), 1);
  EXPECT_EQ(Warmup(1, 0), 1);
  EXPECT_EQ(Warmup(1, -3), 1);
}

TEST(ScheduleTest, LinearFallsToTheLastValueAndStays) {
  EXPECT_EQ(WarmupLinear(1, 2, 10), 0.5);
  EXPECT_EQ(WarmupLinear(2, 2, 10), 1);
  EXPECT_EQ(WarmupLinear(6, 2, 10), 0.5);
  EXPECT_EQ(WarmupLinear(10, 2, 10), 0);
  EXPECT_EQ(WarmupLinear(11, 2, 10), 0);
  EXPECT_EQ(WarmupLinear(6, 2, 10, 0.5), 0.75);
  EXPECT_EQ(WarmupLinear(99, 2, 10, 0.5), 0.5);
  EXPECT_EQ(WarmupLinear(5, -1, 10), 0.5);
}

TEST(ScheduleTest, CosineFollowsHalfAWave) {
  constexpr double kPi = 3.14159265358979323846;
  EXPECT_EQ(WarmupCosine(50, 100, 1100), 0.5);
  for (int64_t step = 100; step <= 1100; ++step) {
    const double expected = 0.1 + 0.9 * 0.5 * (1 + std::cos(kPi * static_cast<double>(step - 100) / 1000));
    EXPECT_NEAR(WarmupCosine(step, 100, 1100, 0.1), expected, 1e-15) << step;
  }
  EXPECT_EQ(WarmupCosine(100, 100, 1100), 1);
  EXPECT_EQ(WarmupCosine(1100, 100, 1100), 0);
  EXPECT_EQ(WarmupCosine(5000, 100, 1100, 0.1), 0.1);
}

TEST(ScheduleTest, TotalsThatLeaveNoStepsAfterTheWarmup) {
  EXPECT_EQ(WarmupLinear(4, 4, 4, 0.5), 0.5);
  EXPECT_EQ(WarmupCosine(4, 4, 2, 0.5), 0.5);
  EXPECT_EQ(WarmupCosine(3, 4, 2, 0.5), 0.75);
}

TEST(ScheduleTest, StepDecayMultipliesAfterEachInterval) {
  EXPECT_EQ(StepDecay(1, 30, 0.1), 1);
  EXPECT_EQ(StepDecay(30, 30, 0.1), 1);
  EXPECT_EQ(StepDecay(31, 30, 0.1), 0.1);
  EXPECT_EQ(StepDecay(61, 30, 0.5), 0.25);
  EXPECT_DEATH(StepDecay(1, 0, 0.5), "every < 1");
}

// Goyal et al.: from the rate of one worker to k times that rate.
TEST(ScheduleTest, LinearScalingReachesTheWorldSize) {
  EXPECT_EQ(LinearScaling(1, 8, 7), 2);
  EXPECT_EQ(LinearScaling(7, 8, 7), 8);
  EXPECT_EQ(LinearScaling(70, 8, 7), 8);
  EXPECT_EQ(LinearScaling(1, 8, 0), 8);
  for (int64_t step = 1; step < 10; ++step) EXPECT_EQ(LinearScaling(step, 1, 5), 1);
}

}  // namespace
}  // namespace ddprun
