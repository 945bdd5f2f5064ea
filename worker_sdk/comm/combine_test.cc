#include "worker_sdk/comm/combine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "worker_sdk/comm/half.h"

namespace ddprun {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// The value of a binary16 number, by the definition of the format.
double ValueOfFloat16(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(HalfTest, EveryFloat16HasItsValueAndConvertsBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = FloatOfFloat16(half);
    if ((half & 0x7C00) == 0x7C00) {
      ASSERT_EQ(std::isnan(value), (half & 0x3FF) != 0) << bits;
      ASSERT_EQ(std::isinf(value), (half & 0x3FF) == 0) << bits;
      if (std::isnan(value)) continue;
    } else {
      ASSERT_EQ(value, ValueOfFloat16(half)) << bits;
    }
    ASSERT_EQ(Float16Of(value), half) << bits;
  }
}

TEST(HalfTest, EveryBFloat16ConvertsBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = FloatOfBFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(FloatOfBFloat16(BFloat16Of(value)))) << bits;
    } else {
      ASSERT_EQ(BFloat16Of(value), bits);
    }
  }
}

// Between each two neighbours: the middle goes to the even one, and its neighbours in float32 to the nearer one.
template <typename FromFloat, typename ToFloat>
void CheckRounding(FromFloat narrow, ToFloat widen, uint16_t infinity) {
  for (uint16_t low = 0; low + 1 < infinity; ++low) {
    const uint16_t high = low + 1;
    const float middle = (widen(low) + widen(high)) / 2;
    for (const uint16_t sign : {0, 0x8000}) {
      const float factor = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(narrow(factor * middle), (low % 2 == 0 ? low : high) | sign) << low;
      ASSERT_EQ(narrow(factor * std::nextafter(middle, 0.0f)), low | sign) << low;
      ASSERT_EQ(narrow(factor * std::nextafter(middle, kInf)), high | sign) << low;
    }
  }
  EXPECT_EQ(narrow(kInf), infinity);
  EXPECT_EQ(narrow(-kInf), infinity | 0x8000);
  EXPECT_EQ(narrow(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::isnan(widen(narrow(kNan))));
  EXPECT_TRUE(
      std::isnan(widen(narrow(std::bit_cast<float>(0x7F800001u)))));  // a NaN whose upper half is infinity
}

TEST(HalfTest, RoundsToTheNearestValueTiesToEven) {
  CheckRounding(Float16Of, FloatOfFloat16, 0x7C00);
  EXPECT_EQ(Float16Of(65519.99f), 0x7BFF);  // the largest finite value is 65504
  EXPECT_EQ(Float16Of(65520.0f), 0x7C00);
}

TEST(HalfTest, RoundsToTheNearestBFloat16TiesToEven) {
  // Denormal float32 numbers have no neighbours in nextafter's sense that this loop could use: begin at 2^-125.
  for (uint32_t low = 0x0100; low + 1 < 0x7F80; ++low) {
    const uint32_t bits = low << 16;
    ASSERT_EQ(BFloat16Of(std::bit_cast<float>(bits + 0x8000)), low + (low & 1)) << low;
    ASSERT_EQ(BFloat16Of(std::bit_cast<float>(bits + 0x7FFF)), low);
    ASSERT_EQ(BFloat16Of(std::bit_cast<float>(bits + 0x8001)), low + 1);
  }
  EXPECT_EQ(BFloat16Of(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(FloatOfBFloat16(BFloat16Of(std::bit_cast<float>(0x7F800001u)))));
}

template <typename T>
T Combined(ReduceOp op, T a, T b, int divisor = 1) {
  T result{};
  Combine({DTypeOf<T>(), op}, &result, &a, &b, 1, divisor);
  return result;
}

TEST(CombineTest, MinAndMaxOfANanAreNan) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(Combined(op, kNan, 1.0f)));
    EXPECT_TRUE(std::isnan(Combined(op, 1.0f, kNan)));
    EXPECT_TRUE(std::isnan(Combined(op, kNan, kNan)));
  }
  EXPECT_EQ(Combined(ReduceOp::kMin, 2.0f, -kInf), -kInf);
  EXPECT_EQ(Combined(ReduceOp::kMax, 2.0, 3.0), 3.0);
  EXPECT_EQ(Combined<int64_t>(ReduceOp::kMin, -5, 4), -5);
  EXPECT_EQ(Combined<uint8_t>(ReduceOp::kMax, 200, 100), 200);
}

TEST(CombineTest, IntegersWrapAround) {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Combined<int32_t>(ReduceOp::kSum, kMax32, 1), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Combined<int64_t>(ReduceOp::kSum, kMax64, 2), std::numeric_limits<int64_t>::min() + 1);
  EXPECT_EQ(Combined<int32_t>(ReduceOp::kProduct, 65536, 65536), 0);
  EXPECT_EQ(Combined<uint8_t>(ReduceOp::kSum, 200, 100), 44);
  EXPECT_EQ(Combined<int32_t>(ReduceOp::kProduct, -3, 5), -15);
}

TEST(CombineTest, AMeanDividesTheSum) {
  EXPECT_EQ(Combined(ReduceOp::kMean, 1.0f, 2.0f, 3), 1.0f);
  EXPECT_EQ(Combined(ReduceOp::kMean, 0.1, 0.2, 3), (0.1 + 0.2) / 3);
}

TEST(CombineTest, AMeanOf16BitsIsRoundedOnce) {
  int rounded_twice_differs = 0;
  for (uint16_t low = 0; low < 128; ++low) {
    const uint16_t a = 0x3F80 + low, b = 0x3B81;  // 1 + low / 128, and 0.00393677
    uint16_t mean = 0;
    Combine({DType::kBFloat16, ReduceOp::kMean}, &mean, &a, &b, 1, 3);
    const float sum = FloatOfBFloat16(a) + FloatOfBFloat16(b);
    EXPECT_EQ(mean, BFloat16Of(sum / 3)) << low;
    rounded_twice_differs += mean != BFloat16Of(FloatOfBFloat16(BFloat16Of(sum)) / 3);
  }
  EXPECT_GT(rounded_twice_differs, 0);
}

TEST(CombineTest, SixteenBitsAreCombinedInFloat32) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const bool half = dtype == DType::kFloat16;
    const auto narrow = half ? Float16Of : BFloat16Of;
    const auto widen = half ? FloatOfFloat16 : FloatOfBFloat16;
    std::vector<uint16_t> a, b;
    for (uint32_t i = 0; i < 65536; i += 7) {
      a.push_back(static_cast<uint16_t>(i));
      b.push_back(static_cast<uint16_t>(i * 40503u));
    }
    std::vector<uint16_t> sum(a.size()), product(a.size());
    Combine({dtype, ReduceOp::kSum}, sum.data(), a.data(), b.data(), a.size(), 1);
    Combine({dtype, ReduceOp::kProduct}, product.data(), a.data(), b.data(), a.size(), 1);
    for (size_t i = 0; i < a.size(); ++i) {
      const float exact_sum = widen(a[i]) + widen(b[i]), exact_product = widen(a[i]) * widen(b[i]);
      ASSERT_TRUE(std::isnan(exact_sum) ? std::isnan(widen(sum[i])) : sum[i] == narrow(exact_sum)) << i;
      ASSERT_TRUE(std::isnan(exact_product) ? std::isnan(widen(product[i]))
                                            : product[i] == narrow(exact_product))
          << i;
    }
  }
}

}  // namespace
}  // namespace ddprun
