#include "worker_sdk/device/host/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "worker_sdk/comm/half.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

std::vector<float> RandomFloats(size_t count) {
  CounterRng rng(4);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(rng.Normal() * std::pow(10, rng.Normal()));
  return values;
}

Tensor Half(std::vector<uint16_t>& values, DType dtype) {
  return {values.data(), static_cast<int64_t>(values.size()), dtype};
}

TEST(CompressTest, RoundsToTheNearest) {
  std::vector<float> values = RandomFloats(1003), back(values.size());
  std::vector<uint16_t> half(values.size()), brain(values.size());
  Compress(View(values), 3, nullptr, Half(half, DType::kFloat16));
  Compress(View(values), 1, nullptr, Half(brain, DType::kBFloat16));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half[i], Float16Of(values[i] / 3));
    ASSERT_EQ(brain[i], BFloat16Of(values[i]));
  }
  Decompress(Half(half, DType::kFloat16), View(back));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], FloatOfFloat16(half[i]));
  std::vector<double> doubles(values.begin(), values.end()), doubles_back(values.size());
  std::vector<uint16_t> from_doubles(values.size());
  Compress(View(doubles), 1, nullptr, Half(from_doubles, DType::kBFloat16));
  EXPECT_EQ(from_doubles, brain);
  Decompress(Half(from_doubles, DType::kBFloat16), View(doubles_back));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(doubles_back[i], FloatOfBFloat16(brain[i]));
}

TEST(CompressTest, TheResidualIsWhatTheRoundingRemoved) {
  const std::vector<float> values = RandomFloats(300);
  std::vector<float> residual(values.size());
  std::vector<double> sent(values.size());
  std::vector<uint16_t> brain(values.size());
  for (int step = 1; step <= 10; ++step) {
    Compress(View(values), 1, residual.data(), Half(brain, DType::kBFloat16));
    for (size_t i = 0; i < values.size(); ++i) {
      sent[i] += FloatOfBFloat16(brain[i]);
      // Nothing is lost: what was sent and what remains is the sum of all inputs.
      ASSERT_NEAR(sent[i] + residual[i], step * static_cast<double>(values[i]), 1e-5 * std::abs(values[i]));
      ASSERT_LE(std::abs(residual[i]), std::abs(values[i]) / 100);
    }
  }
}

TEST(CompressTest, AnInfiniteResultLeavesNoResidual) {
  const std::vector<float> values = {1e6f, std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN(), 1};
  std::vector<float> residual(4);
  std::vector<uint16_t> half(4);
  Compress(View(values), 1, residual.data(), Half(half, DType::kFloat16));
  EXPECT_THAT(residual, testing::Each(0.0f));
  EXPECT_TRUE(std::isinf(FloatOfFloat16(half[0])));
  EXPECT_TRUE(std::isnan(FloatOfFloat16(half[2])));
}

TEST(MultiplyTest, RoundsToTheType) {
  std::vector<float> values = RandomFloats(100), scaled = values;
  Multiply(1.0 / 3, View(scaled));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(scaled[i], static_cast<float>(static_cast<double>(values[i]) / 3.0)) << i;
  }
  std::vector<uint16_t> brain = {BFloat16Of(3), BFloat16Of(-100)};
  Multiply(0.5, Half(brain, DType::kBFloat16));
  EXPECT_EQ(FloatOfBFloat16(brain[0]), 1.5f);
  EXPECT_EQ(FloatOfBFloat16(brain[1]), -50.0f);
}

TEST(GlobalNormTest, IsTheNorm) {
  const std::vector<float> values = RandomFloats(10001);
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  GlobalNorm norm;
  EXPECT_EQ(norm.value(), 0);
  norm.Add(View(values));
  EXPECT_NEAR(norm.value(), std::sqrt(sum), 1e-12 * std::sqrt(sum));
}

TEST(GlobalNormTest, BitsDoNotDependOnTheDivisionIntoTensors) {
  const std::vector<float> values = RandomFloats(13000);
  GlobalNorm whole;
  whole.Add(View(values));
  for (const int64_t part : {1, 7, 8, 100, 4095, 4096, 4097, 9000}) {
    GlobalNorm parts;
    for (int64_t i = 0; i < std::ssize(values); i += part) {
      parts.Add({values.data() + i, std::min(part, std::ssize(values) - i), DType::kFloat32});
    }
    EXPECT_EQ(parts.value(), whole.value()) << part;
  }
}

// The order of the sum is a promise: the blocks may be computed by different ranks.
TEST(GlobalNormTest, SumsInTheDocumentedOrder) {
  const std::vector<float> values = RandomFloats(9000);
  double sum = 0;
  for (size_t begin = 0; begin < values.size(); begin += 4096) {
    double lanes[8] = {};
    for (size_t i = begin; i < std::min(begin + 4096, values.size()); ++i) {
      lanes[(i - begin) % 8] += static_cast<double>(values[i]) * values[i];
    }
    sum += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
  GlobalNorm norm;
  norm.Add(View(values));
  EXPECT_EQ(norm.value(), std::sqrt(sum));
}

TEST(GlobalNormTest, TensorsMayHaveDifferentTypes) {
  std::vector<uint16_t> half = {Float16Of(2)}, brain = {BFloat16Of(4)};
  const std::vector<float> floats = {5};
  const std::vector<double> doubles = {6};
  GlobalNorm norm;
  norm.Add(Half(half, DType::kFloat16));
  norm.Add(Half(brain, DType::kBFloat16));
  norm.Add(View(floats));
  norm.Add(View(doubles));
  EXPECT_EQ(norm.value(), 9);
}

}  // namespace
}  // namespace ddprun
