// Tests when buckets are planned, and where gradients are then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <latch>
#include <numeric>
#include <random>

#include "ddprun/data_parallel.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/ddp/testing/model.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

std::vector<void*> Places(const DataParallel& dp) {
  std::vector<void*> places;
  for (size_t i = 0; i < dp.parameters().size(); ++i) places.push_back(dp.gradient(i).data);
  return places;
}

std::vector<std::vector<size_t>> BucketsOf(const DataParallel& dp) {
  std::vector<std::vector<size_t>> buckets;
  for (const auto& timing : dp.timings()) buckets.push_back(timing.parameters);
  return buckets;
}

// All ranks use the order of rank 0, from the second step on. Gradients move in Begin only.
TEST(DataParallelPlanTest, BucketsFollowTheReadyOrderOfRankZero) {
  WithRanks(3, [](Communicator& comm) {
    FakeModel model;
    for (int i = 0; i < 6; ++i) model.Add(100);
    auto dp = DataParallel::Create(comm, model.parameters(), {.bucket_bytes = 800, .first_bucket_bytes = 1});
    ASSERT_TRUE(dp.ok()) << dp.status();
    const std::vector<size_t> zeros_order = {2, 0, 5, 1, 4, 3}, own_order = {0, 1, 2, 3, 4, 5};
    const std::vector<void*> at_first = Places(*dp);
    ASSERT_EQ(StepInOrder(*dp, comm.rank(), 1, FillWhole, comm.rank() == 0 ? zeros_order : own_order),
              OkStatus());
    EXPECT_THAT(BucketsOf(*dp),
                ElementsAre(ElementsAre(5), ElementsAre(4, 3), ElementsAre(2, 1), ElementsAre(0)));
    EXPECT_EQ(Places(*dp), at_first);
    dp->Begin();
    const std::vector<void*> moved = Places(*dp);
    EXPECT_NE(moved, at_first);
    for (void* place : moved) EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 64, 0);
    for (const size_t i : own_order) {
      FillWhole(dp->gradient(i), comm.rank(), i, 2);
      dp->Ready(i);
    }
    ASSERT_EQ(dp->Finish(), OkStatus());
    EXPECT_THAT(BucketsOf(*dp),
                ElementsAre(ElementsAre(2), ElementsAre(0, 5), ElementsAre(1, 4), ElementsAre(3)));
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(Elements(dp->gradient(i))[9], WholeAt(1, i, 2, 9));  // the mean
    EXPECT_EQ(Places(*dp), moved);
    for (int64_t step = 3; step <= 5; ++step) {
      ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillWhole, own_order), OkStatus());
      EXPECT_EQ(Places(*dp), moved);
    }
  });
}

// Buckets are planned after the second step, from the times of rank 0, and are equal on all ranks.
TEST(DataParallelPlanTest, PlannedBucketsAreEqualOnAllRanks) {
  std::vector<std::vector<std::vector<size_t>>> buckets(3);
  std::vector<size_t> timed;  // the order on rank 0 in the second step
  std::latch finished(3);
  WithRanks(3, [&](Communicator& comm) {
    FakeModel model;
    for (int i = 0; i < 40; ++i) model.Add(5000, i % 2 == 0 ? DType::kFloat32 : DType::kBFloat16, i % 5 == 0);
    auto dp = DataParallel::Create(comm, model.parameters());
    ASSERT_TRUE(dp.ok()) << dp.status();
    std::vector<size_t> order(40);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(comm.rank());
    for (int64_t step = 1; step <= 4; ++step) {
      std::ranges::shuffle(order, random);
      const std::vector<void*> before = Places(*dp);
      ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillWhole, order), OkStatus());
      if (step == 2) {
        if (comm.rank() == 0) timed = order;
        EXPECT_EQ(Places(*dp), before);
      }
      if (step == 4) {
        EXPECT_EQ(Places(*dp), before);
      }
      for (size_t i = 0; i < 40; ++i) ASSERT_EQ(Elements(dp->gradient(i))[7], WholeAt(1, i, step, 7));
    }
    finished.arrive_and_wait();
    // Within a type, the buckets have the order in which gradients became ready on rank 0 in the second step.
    std::vector<size_t> planned, even;
    for (const auto& bucket : BucketsOf(*dp)) planned.insert(planned.end(), bucket.begin(), bucket.end());
    std::ranges::copy_if(planned, std::back_inserter(even), [](size_t i) { return i % 2 == 0; });
    std::vector<size_t> expected;
    std::ranges::copy_if(timed, std::back_inserter(expected), [](size_t i) { return i % 2 == 0; });
    EXPECT_EQ(even, expected);
    EXPECT_THAT(planned, SizeIs(40));
    buckets[comm.rank()] = BucketsOf(*dp);
  });
  EXPECT_THAT(buckets, Each(buckets[0]));
}

}  // namespace
}  // namespace ddprun
