// The arithmetic of the stand-in's reductions.
#include "worker_sdk/testing/gpu/nccl/reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "worker_sdk/comm/half.h"

namespace ddprun::stand_in {
namespace {

template <typename T>
std::vector<T> Of(ncclDataType_t dtype, ncclRedOp_t op, const std::vector<std::vector<T>>& inputs) {
  EXPECT_EQ(SizeOf(dtype), sizeof(T));
  EXPECT_TRUE(CanReduce(dtype, op));
  std::vector<const std::byte*> pointers;
  for (const std::vector<T>& input : inputs)
    pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> out(inputs[0].size());
  Reduce(dtype, op, out.size(), pointers, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

template <typename T>
void ExpectAllOps(ncclDataType_t dtype) {
  const std::vector<std::vector<T>> in{{1, 6}, {5, 2}};
  EXPECT_EQ(Of<T>(dtype, ncclSum, in), (std::vector<T>{6, 8}));
  EXPECT_EQ(Of<T>(dtype, ncclProd, in), (std::vector<T>{5, 12}));
  EXPECT_EQ(Of<T>(dtype, ncclMax, in), (std::vector<T>{5, 6}));
  EXPECT_EQ(Of<T>(dtype, ncclMin, in), (std::vector<T>{1, 2}));
  EXPECT_EQ(Of<T>(dtype, ncclAvg, in), (std::vector<T>{3, 4}));
}

TEST(ReduceTest, AllOpsOfPlainTypes) {
  ExpectAllOps<int8_t>(ncclInt8);
  ExpectAllOps<uint8_t>(ncclUint8);
  ExpectAllOps<int32_t>(ncclInt32);
  ExpectAllOps<uint32_t>(ncclUint32);
  ExpectAllOps<int64_t>(ncclInt64);
  ExpectAllOps<uint64_t>(ncclUint64);
  ExpectAllOps<float>(ncclFloat32);
  ExpectAllOps<double>(ncclFloat64);
}

TEST(ReduceTest, TypesOf16Bits) {
  const std::vector<std::vector<uint16_t>> half{{Float16Of(1.5f)}, {Float16Of(2)}};
  EXPECT_EQ(Of(ncclFloat16, ncclSum, half), std::vector{Float16Of(3.5f)});
  EXPECT_EQ(Of(ncclFloat16, ncclAvg, half), std::vector{Float16Of(1.75f)});
  const std::vector<std::vector<uint16_t>> brain{{BFloat16Of(-3)}, {BFloat16Of(2)}};
  EXPECT_EQ(Of(ncclBfloat16, ncclProd, brain), std::vector{BFloat16Of(-6)});
  EXPECT_EQ(Of(ncclBfloat16, ncclMin, brain), std::vector{BFloat16Of(-3)});
}

TEST(ReduceTest, IntegersOverflow) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max(), kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(Of<int32_t>(ncclInt32, ncclSum, {{kMax}, {1}}), std::vector{kMin});
  EXPECT_EQ(Of<int32_t>(ncclInt32, ncclProd, {{kMax}, {2}}), std::vector{-2});
  EXPECT_EQ(Of<uint8_t>(ncclUint8, ncclSum, {{255}, {2}}), std::vector<uint8_t>{1});
}

TEST(ReduceTest, SumsDependOnTheOrder) {
  EXPECT_NE(Of<float>(ncclFloat32, ncclSum, {{1e8f}, {-1e8f}, {1}}),
            Of<float>(ncclFloat32, ncclSum, {{1e8f}, {1}, {-1e8f}}));
}

TEST(ReduceTest, RefusesWhatItDoesNotHave) {
  EXPECT_FALSE(CanReduce(ncclFloat8e4m3, ncclSum));
  EXPECT_FALSE(CanReduce(ncclFloat32, ncclNumOps));
  EXPECT_EQ(SizeOf(ncclNumTypes), 0);
}

}  // namespace
}  // namespace ddprun::stand_in
