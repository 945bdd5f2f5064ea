#include "examples/train/progress.h"

#include "gtest/gtest.h"

namespace ddprun::train {
namespace {

TEST(ProgressTest, LineHasSpeedAndRemainingTime) {
  TimePoint now{};
  Progress progress(10, 40, 100, now);  // resumed at step 10
  for (int i = 0; i < 5; ++i) progress.StepDone(now += seconds(2));
  EXPECT_EQ(progress.Line(2.5, now), "step=15/40 loss=2.5000 tokens/s=50 left=50s");
  for (int i = 0; i < 5; ++i) progress.StepDone(now += seconds(4));
  EXPECT_DOUBLE_EQ(progress.StepTokensPerSecond(), 25);
  EXPECT_EQ(progress.Line(1.25, now), "step=20/40 loss=1.2500 tokens/s=25 left=1m00s");
}

TEST(ProgressTest, SpeedIsFiniteIfTheClockDoesNotAdvance) {
  Progress progress(0, 2, 100, TimePoint{});
  progress.StepDone(TimePoint{});
  EXPECT_EQ(progress.Line(1, TimePoint{}), "step=1/2 loss=1.0000 tokens/s=100000000000 left=0s");
}

TEST(ForPeopleTest, HasAtMostTwoUnits) {
  EXPECT_EQ(ForPeople(milliseconds(400)), "0s");
  EXPECT_EQ(ForPeople(milliseconds(59'600)), "1m00s");
  EXPECT_EQ(ForPeople(seconds(200)), "3m20s");
  EXPECT_EQ(ForPeople(seconds(7500)), "2h05m");
  EXPECT_EQ(ForPeople(seconds(3 * 86400 + 4 * 3600)), "3d04h");
}

}  // namespace
}  // namespace ddprun::train
