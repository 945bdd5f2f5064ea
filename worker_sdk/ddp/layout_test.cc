#include "worker_sdk/ddp/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

Parameter Of(int64_t count, DType dtype = DType::kFloat32) {
  return {"", {count}, {nullptr, count, dtype}, {}};
}

std::vector<size_t> Pairs(std::span<const size_t> members) {
  std::vector<size_t> counts(members.size() / 2, 2);
  if (members.size() % 2 == 1) counts.push_back(1);
  return counts;
}

TEST(DivideByTypeTest, BucketsOfOneTypeComeWhenTheirLastGradientIsReady) {
  const DType f32 = DType::kFloat32, bf16 = DType::kBFloat16;
  const std::vector<Parameter> parameters = {Of(1, f32), Of(1, bf16), Of(1, f32), Of(1, f32), Of(1, bf16)};
  const std::vector<size_t> order = {4, 3, 2, 1, 0};
  EXPECT_THAT(DivideByType(parameters, order, Pairs),
              ElementsAre(ElementsAre(3, 2), ElementsAre(4, 1), ElementsAre(0)));
}

TEST(EncodeTest, DecodeReturnsTheBuckets) {
  const std::vector<Parameter> parameters(4, Of(1));
  const BucketLists buckets = {{2}, {3, 0}, {1}};
  EXPECT_EQ(Decode(Encode(buckets), parameters), buckets);
}

TEST(EncodeTest, DecodeRefusesWhatIsNotADivision) {
  const std::vector<Parameter> parameters = {Of(1), Of(1), Of(1, DType::kFloat64)};
  const std::vector<std::vector<int64_t>> invalid = {
      {0, 1, 1, 1},              // one is missing
      {0, 1, 1, 1, 1, 1},        // twice
      {0, 1, 1, 1, 3, 1},        // does not exist
      {0, 1, 1, 1, -1, 1},       // does not exist
      {0, 1, 1, 0, 2, 1},        // two types in a bucket
      {0, 1, 1, 1, 2, 0},        // the last bucket has no end
      {0, 1, 1, 1, 2, 1, 0, 1},  // too many
  };
  for (const auto& numbers : invalid) EXPECT_EQ(Decode(numbers, parameters), std::nullopt);
  EXPECT_NE(Decode(std::vector<int64_t>{0, 1, 1, 1, 2, 1}, parameters), std::nullopt);
}

TEST(LayOutTest, SlotsAreAlignedAndDoNotOverlapForAnyDivision) {
  std::mt19937 random(3);
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Parameter> parameters(1 + random() % 20);
    for (Parameter& p : parameters) p = Of(random() % 100, dtypes[random() % 4]);
    const int64_t extra = random() % 2;
    std::vector<size_t> order(parameters.size());
    std::iota(order.begin(), order.end(), 0);
    const auto totals = LayOut(parameters, DivideByType(parameters, order, Pairs), extra).totals;
    std::ranges::shuffle(order, random);
    const BucketLists buckets = DivideByType(parameters, order, Pairs);
    const Layout layout = LayOut(parameters, buckets, extra);
    EXPECT_EQ(layout.totals, totals);
    ASSERT_EQ(layout.buckets.size(), buckets.size());
    size_t position = 0;
    std::array<int64_t, 8> next = {};
    for (size_t b = 0; b < buckets.size(); ++b) {
      const Layout::Bucket& bucket = layout.buckets[b];
      int64_t& end = next[static_cast<size_t>(bucket.dtype)];
      EXPECT_EQ(bucket.parameters, buckets[b]);
      EXPECT_EQ(bucket.begin, end);
      for (const size_t i : buckets[b]) {
        const Slot& slot = layout.slots[i];
        EXPECT_EQ(parameters[i].value.dtype, bucket.dtype);
        EXPECT_EQ(slot.begin, end);
        EXPECT_EQ(slot.begin * SizeOf(bucket.dtype) % 64, 0);
        EXPECT_EQ(slot.count, parameters[i].value.count);
        EXPECT_GE(slot.allocated, slot.count + extra);
        EXPECT_LT(slot.allocated * SizeOf(bucket.dtype), (slot.count + extra) * SizeOf(bucket.dtype) + 64);
        EXPECT_EQ(slot.position, position++);
        EXPECT_EQ(slot.bucket, b);
        end += slot.allocated;
      }
      EXPECT_EQ(bucket.begin + bucket.count, end);
    }
    EXPECT_EQ(next, totals);
  }
}

}  // namespace
}  // namespace ddprun
