// The kernels, compiled for the CPU, compute the bits of the functions that they name.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ddprun/tensor.h"
#include "worker_sdk/comm/half.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/device/cuda/testing/host_cuda.h"
#include "worker_sdk/device/host/gradients.h"
#include "worker_sdk/device/host/updates.h"

// After host_cuda.h, which defines what the kernels use.
#include "worker_sdk/device/cuda/kernels.cu"

namespace ddprun {
namespace {

constexpr unsigned kBlocks = 2, kThreads = 32;

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(rng.Normal() * std::pow(10, 2 * rng.Normal()));
  return values;
}

// All signs and exponents, each with fractions next to those that rounding distinguishes.
std::vector<float> FloatsOfAllExponents() {
  std::vector<float> values;
  for (uint32_t top = 0; top < 512; ++top) {
    for (uint32_t i = 0; i < 64; ++i) {
      for (const uint32_t end :
           {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
        values.push_back(std::bit_cast<float>(top << 23 | i << 17 | (i & 1) << 16 | end));
    }
  }
  return values;
}

TEST(KernelsSourceTest, Fill) {
  std::vector<float> out(1001, 7);
  LaunchOnHost(kBlocks, kThreads, FillFloat32, out.data(), 0.5f, 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 0.5f) << i;
  EXPECT_EQ(out[1000], 7);
}

TEST(KernelsSourceTest, ScaleAndScaleAdd) {
  const std::vector<float> before = RandomFloats(1000, 1), addend = RandomFloats(1000, 2);
  std::vector<float> scaled = before, sum = before;
  LaunchOnHost(kBlocks, kThreads, ScaleFloat32, scaled.data(), 0.3f, 999);
  LaunchOnHost(kBlocks, kThreads, ScaleAddFloat32, sum.data(), 0.3f, addend.data(), 999);
  for (int i = 0; i < 999; ++i) {
    const volatile float product = before[i] * 0.3f;  // rounded
    ASSERT_EQ(Bits(scaled[i]), Bits(product)) << i;
    ASSERT_EQ(Bits(sum[i]), Bits(product + addend[i])) << i;
  }
  EXPECT_EQ(scaled[999], before[999]);
  EXPECT_EQ(sum[999], before[999]);
}

TEST(KernelsSourceTest, CastsTo16Bits) {
  const std::vector<float> in = FloatsOfAllExponents();
  std::vector<uint16_t> half(in.size()), brain(in.size());
  LaunchOnHost(kBlocks, kThreads, CastFloat32ToFloat16, half.data(), in.data(), in.size());
  LaunchOnHost(kBlocks, kThreads, CastFloat32ToBFloat16, brain.data(), in.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(half[i], Float16Of(in[i])) << std::hex << Bits(in[i]);
    ASSERT_EQ(brain[i], BFloat16Of(in[i])) << std::hex << Bits(in[i]);
  }
}

TEST(KernelsSourceTest, CastsFrom16Bits) {
  std::vector<uint16_t> in(0x10000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> of_half(in.size()), of_brain(in.size());
  LaunchOnHost(kBlocks, kThreads, CastFloat16ToFloat32, of_half.data(), in.data(), in.size());
  LaunchOnHost(kBlocks, kThreads, CastBFloat16ToFloat32, of_brain.data(), in.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(Bits(of_half[i]), Bits(FloatOfFloat16(in[i]))) << i;
    ASSERT_EQ(Bits(of_brain[i]), Bits(FloatOfBFloat16(in[i]))) << i;
  }
}

TEST(KernelsSourceTest, MultiplyRoundsOnce) {
  std::vector<float> values = RandomFloats(1000, 8), expected = values;
  LaunchOnHost(kBlocks, kThreads, MultiplyFloat32, values.data(), 0.1, values.size());
  Multiply(0.1, View(expected));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(Bits(values[i]), Bits(expected[i])) << i;
}

TEST(KernelsSourceTest, Compress) {
  const std::vector<float> in = FloatsOfAllExponents();
  const auto count = static_cast<int64_t>(in.size());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto kernel = dtype == DType::kFloat16 ? CompressFloat32ToFloat16 : CompressFloat32ToBFloat16;
    std::vector<uint16_t> out(in.size()), expected_out(in.size());
    std::vector<float> residual(in.size()), expected_residual(in.size());
    for (const bool has_residual : {false, true, true}) {  // the third pass adds what the second one removed
      LaunchOnHost(kBlocks, kThreads, kernel, out.data(), in.data(), 3.0f,
                   has_residual ? residual.data() : nullptr, count);
      Compress({in.data(), count, DType::kFloat32}, 3, has_residual ? expected_residual.data() : nullptr,
               {expected_out.data(), count, dtype});
      for (size_t i = 0; i < in.size(); ++i) {
        if (std::isnan(in[i])) continue;
        ASSERT_EQ(out[i], expected_out[i]) << in[i];
        ASSERT_EQ(Bits(residual[i]), Bits(expected_residual[i])) << in[i];
      }
    }
  }
}

// Arrays of these sizes, one after the other: blocks begin and end in any of them.
TEST(KernelsSourceTest, SumsOfSquaresAreThoseOfTheGlobalNorm) {
  const std::vector<std::vector<int64_t>> kSizes = {
      {1},          {7, 8},          {4095},         {4096}, {4097}, {9 * 4096 + 100}, {100, 3996, 5},
      {4095, 1, 1}, {4096, 1, 8191}, {3, 3, 3, 9000}};
  for (const std::vector<int64_t>& sizes : kSizes) {
    GlobalNorm norm;
    std::vector<double> sums(100, -1);
    std::vector<double> open(8, -1);
    int64_t filled = 0;
    size_t num_sums = 0;
    for (size_t t = 0; t < sizes.size(); ++t) {
      const std::vector<float> in = RandomFloats(sizes[t], 3 + t);
      std::vector<double> after(8, -1);
      LaunchOnHost(kBlocks, kThreads, SumOfSquaresFloat32, sums.data() + num_sums, after.data(), open.data(),
                   filled, in.data(), sizes[t]);
      num_sums += (filled + sizes[t]) / 4096;
      filled = (filled + sizes[t]) % 4096;
      open = after;
      norm.Add({in.data(), sizes[t], DType::kFloat32});
    }
    double total = 0;
    for (size_t b = 0; b < num_sums; ++b) total += sums[b];
    if (filled > 0) {
      total += ((open[0] + open[4]) + (open[2] + open[6])) + ((open[1] + open[5]) + (open[3] + open[7]));
    } else {
      EXPECT_EQ(open, std::vector<double>(8, -1));
    }
    EXPECT_EQ(std::sqrt(total), norm.value()) << sizes.size() << " arrays, the first of " << sizes[0];
    EXPECT_EQ(sums[num_sums], -1);
  }
}

TEST(KernelsSourceTest, AdamW) {
  constexpr AdamWOptions kOptions{.learning_rate = 0.01, .weight_decay = 0.1};
  std::vector<float> params = RandomFloats(1000, 4), m(1000), v(1000);
  std::vector<float> expected = params, expected_m = m, expected_v = v;
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> grads = RandomFloats(1000, 4 + step);
    const auto scalars = AdamWScalarsOf<float>(kOptions, step);
    AdamWLoop<float>(scalars, grads, expected, expected_m, expected_v);
    LaunchOnHost(kBlocks, kThreads, AdamWFloat32, params.data(), m.data(), v.data(), grads.data(),
                 scalars.rate, scalars.epsilon, scalars.keep, scalars.beta1, scalars.beta2, 1000);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(Bits(m[i]), Bits(expected_m[i])) << step << " " << i;
      ASSERT_EQ(Bits(v[i]), Bits(expected_v[i])) << step << " " << i;
      ASSERT_EQ(Bits(params[i]), Bits(expected[i])) << step << " " << i;
    }
  }
}

TEST(KernelsSourceTest, Sgd) {
  constexpr SgdScalars kScalars{.rate = 0.01f, .keep = 0.999f, .momentum = 0.9f};
  for (const bool has_momentum : {false, true}) {
    std::vector<float> params = RandomFloats(1000, 4), v(has_momentum ? 1000 : 0);
    std::vector<float> expected = params, expected_v = v;
    for (int step = 1; step <= 3; ++step) {
      const std::vector<float> grads = RandomFloats(1000, 4 + step);
      SgdLoop(kScalars, grads, expected, expected_v);
      LaunchOnHost(kBlocks, kThreads, SgdFloat32, params.data(), has_momentum ? v.data() : nullptr,
                   grads.data(), kScalars.rate, kScalars.keep, kScalars.momentum, 1000);
      for (int i = 0; i < 1000; ++i) ASSERT_EQ(Bits(params[i]), Bits(expected[i])) << step << " " << i;
      EXPECT_EQ(v, expected_v);
    }
  }
}

}  // namespace
}  // namespace ddprun
