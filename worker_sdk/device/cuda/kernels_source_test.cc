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
#include "worker_sdk/ddp/gradients.h"
#include "worker_sdk/device/cuda/testing/host_cuda.h"
#include "worker_sdk/optim/adamw.h"
#include "worker_sdk/optim/power.h"

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

TEST(KernelsSourceTest, SumsOfSquaresAreThoseOfTheGlobalNorm) {
  for (const int64_t count : {0, 1, 7, 8, 4095, 4096, 4097, 9 * 4096 + 100}) {
    const std::vector<float> in = RandomFloats(count, 3);
    const int64_t num_sums = (count + 4095) / 4096;
    std::vector<double> sums(num_sums + 1, -1);
    LaunchOnHost(kBlocks, kThreads, SumOfSquaresFloat32, sums.data(), in.data(), count);
    GlobalNorm norm;
    double total = 0;
    for (int64_t b = 0; b < num_sums; ++b) {
      const ConstTensor block(in.data() + b * 4096, std::min<int64_t>(4096, count - b * 4096),
                              DType::kFloat32);
      GlobalNorm norm_of_block;
      norm_of_block.Add(block);
      EXPECT_EQ(std::sqrt(sums[b]), norm_of_block.value()) << count << " " << b;
      norm.Add(block);
      total += sums[b];
    }
    EXPECT_EQ(std::sqrt(total), norm.value()) << count;
    EXPECT_EQ(sums[num_sums], -1);
  }
}

TEST(KernelsSourceTest, AdamW) {
  constexpr AdamWOptions kOptions{.learning_rate = 0.01, .weight_decay = 0.1};
  std::vector<float> params = RandomFloats(1000, 4), m(1000), v(1000);
  std::vector<float> expected = params, expected_m = m, expected_v = v;
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> grads = RandomFloats(1000, 4 + step);
    AdamWStep<float>(kOptions, step, grads, expected, expected_m, expected_v);
    const double root = std::sqrt(1 - Power(kOptions.beta2, step));
    const double rate = kOptions.learning_rate * root / (1 - Power(kOptions.beta1, step));
    const double keep = 1 - kOptions.learning_rate * kOptions.weight_decay;
    LaunchOnHost(kBlocks, kThreads, AdamWFloat32, params.data(), m.data(), v.data(), grads.data(),
                 static_cast<float>(rate), static_cast<float>(kOptions.epsilon * root),
                 static_cast<float>(keep), static_cast<float>(kOptions.beta1),
                 static_cast<float>(kOptions.beta2), 1000);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(Bits(m[i]), Bits(expected_m[i])) << step << " " << i;
      ASSERT_EQ(Bits(v[i]), Bits(expected_v[i])) << step << " " << i;
      ASSERT_EQ(Bits(params[i]), Bits(expected[i])) << step << " " << i;
    }
  }
}

}  // namespace
}  // namespace ddprun
