#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "worker_sdk/ddp/buckets.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Bucket> Plan(const std::vector<size_t>& num_elems, size_t first, size_t others) {
  return PlanBuckets(num_elems, first, others);
}

TEST(BucketPlanTest, WithoutGradientsThereAreNoBuckets) { EXPECT_THAT(Plan({}, 1, 1), IsEmpty()); }

TEST(BucketPlanTest, TheFirstBucketIsClosedEarly) {
  EXPECT_THAT(Plan({10, 10, 10, 10, 10, 10}, 10, 30),
              ElementsAre(Bucket{0, 1, 10}, Bucket{1, 3, 30}, Bucket{4, 2, 20}));
}

TEST(BucketPlanTest, AGradientIsNeverSplit) {
  EXPECT_THAT(Plan({1000, 1, 1, 1000}, 5, 10), ElementsAre(Bucket{0, 1, 1000}, Bucket{1, 3, 1002}));
}

TEST(BucketPlanTest, WithLimitZeroEachBucketHoldsOneGradient) {
  EXPECT_THAT(Plan({0, 7}, 0, 0), ElementsAre(Bucket{0, 1, 0}, Bucket{1, 1, 7}));
}

TEST(BucketPlanTest, EveryGradientIsInExactlyOneBucketAndOnlyTheLastIsSmall) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<size_t> sizes(random() % 50);
    for (size_t& s : sizes) s = random() % 100;
    const size_t first_elems = random() % 100, elems = random() % 300;
    const std::vector<Bucket> buckets = PlanBuckets(sizes, first_elems, elems);
    size_t next = 0;
    for (size_t b = 0; b < buckets.size(); ++b) {
      EXPECT_EQ(buckets[b].first, next);
      EXPECT_GT(buckets[b].count, 0u);
      size_t sum = 0;
      for (size_t i = 0; i < buckets[b].count; ++i) sum += sizes[next++];
      EXPECT_EQ(buckets[b].num_elems, sum);
      if (b + 1 < buckets.size()) {
        const size_t limit = b == 0 ? first_elems : elems;
        EXPECT_GE(sum, limit);
        if (buckets[b].count > 1) {
          EXPECT_LT(sum - sizes[next - 1], limit);
        }
      }
    }
    EXPECT_EQ(next, sizes.size());
  }
}

}  // namespace
}  // namespace ddprun
