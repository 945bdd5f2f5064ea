#include "worker_sdk/ddp/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <numeric>
#include <random>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Sizes = std::vector<int64_t>;
using Gradients = std::vector<ReadyGradient>;

TEST(PlanBySizeTest, WithoutGradientsThereAreNoBuckets) { EXPECT_THAT(PlanBySize({}, 1, 1), IsEmpty()); }

TEST(PlanBySizeTest, TheFirstBucketIsClosedEarly) {
  EXPECT_THAT(PlanBySize(Sizes{10, 10, 10, 10, 10, 10}, 10, 30), ElementsAre(1, 3, 2));
}

TEST(PlanBySizeTest, AGradientIsNeverSplit) {
  EXPECT_THAT(PlanBySize(Sizes{1000, 1, 1, 1000}, 5, 10), ElementsAre(1, 3));
}

TEST(PlanBySizeTest, WithLimitZeroEachBucketHoldsOneGradient) {
  EXPECT_THAT(PlanBySize(Sizes{0, 7}, 0, 0), ElementsAre(1, 1));
}

TEST(PlanBySizeTest, EveryGradientIsInExactlyOneBucketAndOnlyTheLastIsSmall) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    Sizes sizes(random() % 50);
    for (int64_t& s : sizes) s = random() % 100;
    const int64_t first_bytes = random() % 100, bytes = random() % 300;
    const std::vector<size_t> plan = PlanBySize(sizes, first_bytes, bytes);
    size_t next = 0;
    for (size_t b = 0; b < plan.size(); ++b) {
      EXPECT_GT(plan[b], 0u);
      int64_t sum = 0;
      for (size_t i = 0; i < plan[b]; ++i) sum += sizes[next++];
      if (b + 1 < plan.size()) {
        const int64_t limit = b == 0 ? first_bytes : bytes;
        EXPECT_GE(sum, limit);
        if (plan[b] > 1) {
          EXPECT_LT(sum - sizes[next - 1], limit);
        }
      }
    }
    EXPECT_EQ(next, sizes.size());
  }
}

TEST(PlanByCostTest, WithoutGradientsThereAreNoBuckets) { EXPECT_THAT(PlanByCost({}, {}), IsEmpty()); }

TEST(PlanByCostTest, WithoutLatencyBucketsStartAsEarlyAsPossible) {
  // 1 s of compute for each gradient, and 1 s to reduce it: one bucket would end at 7 s, four end at 4 s.
  const Gradients gradients = {{0, 100}, {1, 100}, {2, 100}, {3, 100}};
  EXPECT_THAT(PlanByCost(gradients, {0, 100}), ElementsAre(1, 1, 1, 1));
}

TEST(PlanByCostTest, GradientsThatAreReadyTogetherShareABucket) {
  const Gradients gradients = {{0, 100}, {0, 100}, {0, 100}, {0, 100}};
  EXPECT_THAT(PlanByCost(gradients, {0.1, 100}), ElementsAre(4));
  EXPECT_THAT(PlanByCost(gradients, {0, 100}), ElementsAre(4));  // equal ends: the fewest buckets
}

TEST(PlanByCostTest, AHighLatencyGivesOneBucket) {
  EXPECT_THAT(PlanByCost(Gradients{{0, 100}, {1, 100}, {2, 100}, {3, 100}}, {50, 100}), ElementsAre(4));
}

TEST(PlanByCostTest, TheLastBucketIsSmallIfReducingIsFasterThanComputing) {
  // The first three are reduced while the last one is computed; a fourth in their bucket would delay the end.
  EXPECT_THAT(PlanByCost(Gradients{{0, 100}, {1, 100}, {2, 100}, {10, 100}}, {0.5, 100}), ElementsAre(3, 1));
}

// The least end of all plans, and the fewest buckets of the plans that end by it, by trying all of them.
struct Best {
  double end = std::numeric_limits<double>::infinity();
  size_t num_buckets = 0;
};
Best TryAll(const Gradients& gradients, const AllReduceCost& cost, double deadline) {
  Best best;
  best.num_buckets = gradients.size() + 1;
  for (unsigned borders = 0; borders < 1u << (gradients.size() - 1); ++borders) {
    std::vector<size_t> plan = {1};
    for (size_t i = 1; i < gradients.size(); ++i) {
      if (borders >> (i - 1) & 1) plan.push_back(0);
      ++plan.back();
    }
    const double end = EndOfPlan(gradients, cost, plan);
    best.end = std::min(best.end, end);
    if (end <= deadline) best.num_buckets = std::min(best.num_buckets, plan.size());
  }
  return best;
}

TEST(PlanByCostTest, NoPlanIsFasterAndNoneOfTheFastOnesHasFewerBuckets) {
  std::mt19937 random(7);
  const auto uniform = [&](double most) { return std::uniform_real_distribution<>(0, most)(random); };
  size_t num_split = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Gradients gradients(1 + random() % 10);
    double now = uniform(5);
    for (ReadyGradient& g : gradients) {
      if (random() % 4 > 0) now += uniform(1);
      g = {now, random() % 5 == 0 ? 0 : static_cast<int64_t>(uniform(1000))};
    }
    const AllReduceCost cost{random() % 4 == 0 ? 0 : uniform(0.5), 100 + uniform(3000)};
    const std::vector<size_t> plan = PlanByCost(gradients, cost);
    EXPECT_EQ(std::accumulate(plan.begin(), plan.end(), size_t{0}), gradients.size());
    const double end = EndOfPlan(gradients, cost, plan);
    const double least = TryAll(gradients, cost, 0).end;
    EXPECT_LE(end, least * 1.0101) << "trial " << trial;
    EXPECT_LE(plan.size(), TryAll(gradients, cost, least * 1.0099).num_buckets) << "trial " << trial;
    num_split += plan.size() > 1;
  }
  EXPECT_GT(num_split, 500u);  // otherwise the trials show little
}

TEST(PlanByCostTest, TimesThatGoBackCountAsEqual) {
  const Gradients back = {{5, 100}, {3, 100}, {9, 100}}, equal = {{5, 100}, {5, 100}, {9, 100}};
  EXPECT_EQ(PlanByCost(back, {0.1, 100}), PlanByCost(equal, {0.1, 100}));
}

TEST(PlanByCostTest, LargeModelsArePlannedQuickly) {
  Gradients gradients;
  for (int i = 0; i < 20000; ++i) gradients.push_back({i * 1e-5, 40000});
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<size_t> plan = PlanByCost(gradients, {20e-6, 8e9});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_GT(plan.size(), 1u);
  EXPECT_LT(EndOfPlan(gradients, {20e-6, 8e9}, plan), 0.2 * 1.02);
}

TEST(DivideLargeTest, SmallBucketsAreKept) {
  const Gradients gradients = {{0, 1 << 19}, {0, 1 << 18}, {1, 1 << 18}};
  EXPECT_THAT(DivideLarge(gradients, {0, 1e9}, std::vector<size_t>{2, 1}), ElementsAre(2, 1));
  EXPECT_THAT(DivideLarge({}, {0, 1e9}, {}), IsEmpty());
}

TEST(DivideLargeTest, ABucketIsDividedWhereLatencyCostsLittle) {
  const Gradients gradients(8, {0, 1 << 19});
  EXPECT_THAT(DivideLarge(gradients, {0, 1e9}, std::vector<size_t>{8}), ElementsAre(2, 2, 2, 2));
  // 100 times the latency of 20 us are 2 ms, in which 2 MB are exchanged.
  EXPECT_THAT(DivideLarge(gradients, {20e-6, 1e9}, std::vector<size_t>{8}), ElementsAre(4, 4));
  EXPECT_THAT(DivideLarge(gradients, {1, 1e9}, std::vector<size_t>{8}), ElementsAre(8));
}

TEST(DivideLargeTest, AGradientThatIsLargeAloneHasABucketOfItsOwn) {
  const Gradients gradients = {{0, 100}, {0, 5 << 20}, {0, 100}, {0, 100}, {0, 2 << 20}};
  EXPECT_THAT(DivideLarge(gradients, {0, 1e9}, std::vector<size_t>{5}), ElementsAre(1, 1, 2, 1));
}

TEST(DivideLargeTest, ThePlanEndsHardlyLater) {
  std::mt19937 random(8);
  for (int trial = 0; trial < 300; ++trial) {
    Gradients gradients(1 + random() % 40);
    double now = 0;
    for (ReadyGradient& g : gradients) {
      now += random() % 1000 * 1e-5;
      g = {now, static_cast<int64_t>(random() % (4 << 20))};
    }
    const AllReduceCost cost{random() % 1000 * 1e-6, 1e8 + random() % 1000 * 1e7};
    const std::vector<size_t> plan = PlanByCost(gradients, cost),
                              divided = DivideLarge(gradients, cost, plan);
    EXPECT_EQ(std::accumulate(divided.begin(), divided.end(), size_t{0}), gradients.size());
    EXPECT_GE(divided.size(), plan.size());
    // Each additional bucket costs its latency. All but the last piece of a bucket have enough bytes, or precede one.
    EXPECT_LE(EndOfPlan(gradients, cost, divided),
              EndOfPlan(gradients, cost, plan) + (divided.size() - plan.size()) * cost.latency_s + 1e-9);
  }
}

}  // namespace
}  // namespace ddprun
