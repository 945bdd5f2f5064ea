#include "launcher/monitor/stuck_process_monitor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

TEST(SleepTableTest, ReportsEachSleepOnceWhenItReachesTheLimit) {
  SleepTable table(milliseconds(100));
  EXPECT_THAT(table.Look({{1, 'D'}, {2, 'S'}, {3, 'D'}}, At(0)), IsEmpty());
  EXPECT_THAT(table.Look({{1, 'D'}, {2, 'D'}, {3, 'D'}}, At(99)), IsEmpty());
  EXPECT_THAT(table.Look({{1, 'D'}, {2, 'D'}, {3, 'R'}}, At(100)),
              ElementsAre(SleepTable::Sleeper{1, milliseconds(100)}));
  EXPECT_THAT(table.Look({{1, 'D'}, {2, 'D'}, {3, 'D'}}, At(198)), IsEmpty());
  EXPECT_THAT(table.Look({{1, 'D'}, {2, 'D'}, {3, 'D'}}, At(200)),
              ElementsAre(SleepTable::Sleeper{2, milliseconds(101)}))
      << "process 3 must not be reported, because it was not in state D at 100 ms";
}

TEST(SleepTableTest, DoesNotTrackProcessesThatAreNotListed) {
  SleepTable table(milliseconds(100));
  EXPECT_THAT(table.Look({{1, 'D'}}, At(0)), IsEmpty());
  EXPECT_THAT(table.Look({}, At(50)), IsEmpty());
  EXPECT_THAT(table.Look({{1, 'D'}}, At(120)), IsEmpty());
}

TEST(SleepTableTest, IntervalIsAQuarterOfTheLimitWithinBounds) {
  EXPECT_EQ(SleepTable(milliseconds(400)).Interval(), milliseconds(100));
  EXPECT_EQ(SleepTable(seconds(600)).Interval(), seconds(1));
  EXPECT_EQ(SleepTable(milliseconds(1)).Interval(), milliseconds(10));
}

}  // namespace
}  // namespace ddprun
