#include "worker_sdk/ddp/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BucketSchedulerTest : public testing::Test {
 protected:
  std::vector<size_t> Ready(size_t index) { return scheduler_.Step(GradBecameReady{index}).buckets; }

  // Three buckets: gradient 0, gradients 1 and 2, gradient 3.
  BucketScheduler scheduler_{{1, 2, 1}};
};

TEST_F(BucketSchedulerTest, LaunchesABucketWithItsLastGradient) {
  EXPECT_TRUE(scheduler_.done());
  EXPECT_THAT(scheduler_.Step(StepBegan{}).buckets, IsEmpty());
  EXPECT_FALSE(scheduler_.done());
  EXPECT_THAT(Ready(0), ElementsAre(0));
  EXPECT_THAT(Ready(1), IsEmpty());
  EXPECT_THAT(Ready(2), ElementsAre(1));
  EXPECT_THAT(Ready(3), ElementsAre(2));
  EXPECT_TRUE(scheduler_.done());
}

TEST_F(BucketSchedulerTest, LaunchesABucketOnlyAfterAllEarlierBuckets) {
  (void)scheduler_.Step(StepBegan{});
  EXPECT_THAT(Ready(3), IsEmpty());
  EXPECT_THAT(Ready(2), IsEmpty());
  EXPECT_THAT(Ready(1), IsEmpty());
  EXPECT_THAT(Ready(0), ElementsAre(0, 1, 2));
}

TEST_F(BucketSchedulerTest, EveryStepStartsFromTheBeginning) {
  for (int step = 0; step < 3; ++step) {
    (void)scheduler_.Step(StepBegan{});
    for (size_t i : {1, 0, 3}) (void)Ready(i);
    EXPECT_FALSE(scheduler_.done());
    EXPECT_THAT(Ready(2), ElementsAre(1, 2));
  }
}

TEST_F(BucketSchedulerTest, AnyOrderOfGradientsGivesTheSameOrderOfBuckets) {
  std::mt19937 random(1);
  std::vector<size_t> order(4);
  std::iota(order.begin(), order.end(), 0);
  for (int trial = 0; trial < 100; ++trial) {
    std::shuffle(order.begin(), order.end(), random);
    (void)scheduler_.Step(StepBegan{});
    std::vector<size_t> launched;
    for (size_t i : order) {
      const auto buckets = Ready(i);
      launched.insert(launched.end(), buckets.begin(), buckets.end());
    }
    EXPECT_THAT(launched, ElementsAre(0, 1, 2));
  }
}

using BucketSchedulerDeathTest = BucketSchedulerTest;

TEST_F(BucketSchedulerDeathTest, AbortsOnAMisusedStep) {
  EXPECT_DEATH((void)Ready(0), "broken invariant");  // no step has begun
  (void)scheduler_.Step(StepBegan{});
  (void)Ready(1);
  EXPECT_DEATH((void)Ready(1), "ready twice in a step");
  EXPECT_DEATH((void)Ready(4), "no such gradient");
  EXPECT_DEATH((void)scheduler_.Step(StepBegan{}), "before the previous one was done");
}

}  // namespace
}  // namespace ddprun
