#include "rendezvous/core/failure_history.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(LossRowTest, LossesWithoutProgressCostALongerAndLongerPause) {
  LossStreak row;
  for (const int pause : {0, 1, 2, 4, 8, 16, 30, 30}) {
    row.Lost(seconds(3), std::nullopt);
    EXPECT_EQ(row.pause(), seconds(pause));
  }
  EXPECT_EQ(row.count(), 8);
}

TEST(LossRowTest, AStepIsProgress) {
  LossStreak row;
  row.Lost(seconds(3), 10);
  row.Lost(seconds(3), 10);
  EXPECT_EQ(row.count(), 2);
  row.Lost(seconds(3), 11);
  EXPECT_EQ(row.count(), 1);
}

TEST(LossRowTest, ALongRoundIsProgress) {
  LossStreak row;
  row.Lost(seconds(3), std::nullopt);
  row.Lost(seconds(60), std::nullopt);
  EXPECT_EQ(row.count(), 1);
}

}  // namespace
}  // namespace ddprun
