#include "examples/train/model/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "examples/train/model/buffer.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun::train {
namespace {

template <typename T>
std::vector<T> Random(size_t num_elems, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<T> values(num_elems);
  for (T& value : values) value = static_cast<T>(rng.Normal());
  return values;
}

// Calls test(layers) for every variant that this CPU supports.
template <typename T, typename Test>
void ForVariants(const Test& test) {
  for (const char* cpu : {"baseline", "avx2"}) {
    SCOPED_TRACE(cpu);
    if (const Layers<T>* layers = LayersFor<T>(cpu)) test(*layers);
  }
}

// Sizes that are not multiples of those of vectors, tiles and panels. The sums over I and O are longer than
// the pieces in which they are computed.
template <typename T>
void ExpectLinearIsItsDefinition(const Layers<T>& layers, double tolerance) {
  constexpr int B = 3, S = 7, N = B * S, I = 530, O = 293;
  const auto x = Random<T>(N * I, 1), weight = Random<T>(O * I, 2), bias = Random<T>(O, 3),
             residual = Random<T>(N * O, 4), d_y = Random<T>(N * O, 5);
  std::vector<T> y(N * O), d_x(N * I), d_weight(O * I), d_bias(O);
  Scratch<T> scratch;
  layers.LinearForward(y.data(), x.data(), weight.data(), bias.data(), residual.data(), N, I, O);
  layers.LinearBackwardInput(d_x.data(), d_y.data(), weight.data(), N, I, O);
  layers.LinearBackward(d_weight.data(), d_bias.data(), d_y.data(), x.data(), scratch, B, S, I, O);
  for (int o = 0; o < O; ++o) {
    double sum = 0;
    for (int n = 0; n < N; ++n) {
      double expected = bias[o] + residual[n * O + o];
      for (int i = 0; i < I; ++i) expected += double{x[n * I + i]} * weight[o * I + i];
      ASSERT_NEAR(y[n * O + o], expected, tolerance) << n << " " << o;
      sum += d_y[n * O + o];
    }
    ASSERT_NEAR(d_bias[o], sum, tolerance) << o;
    for (int i = 0; i < I; ++i) {
      double expected = 0;
      for (int n = 0; n < N; ++n) expected += double{d_y[n * O + o]} * x[n * I + i];
      ASSERT_NEAR(d_weight[o * I + i], expected, tolerance) << o << " " << i;
    }
  }
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < I; ++i) {
      double expected = 0;
      for (int o = 0; o < O; ++o) expected += double{d_y[n * O + o]} * weight[o * I + i];
      ASSERT_NEAR(d_x[n * I + i], expected, tolerance) << n << " " << i;
    }
  }
}

TEST(LayersTest, LinearIsItsDefinition) {
  ForVariants<float>([](const Layers<float>& layers) { ExpectLinearIsItsDefinition(layers, 2e-4); });
  ForVariants<double>([](const Layers<double>& layers) { ExpectLinearIsItsDefinition(layers, 1e-12); });
}

// Computes one layer of each kind on arrays that begin `offset` elements after an aligned address.
template <typename T>
std::vector<T> OutputsAt(const Layers<T>& layers, int offset) {
  constexpr int S = 13, C = 22, H = 2;
  const auto place = [&](const std::vector<T>& values) {
    Buffer<T> buffer(values.size() + offset);
    std::copy(values.begin(), values.end(), buffer.data() + offset);
    return buffer;
  };
  Buffer<T> x = place(Random<T>(S * 3 * C, 1)), weight = place(Random<T>(C * C, 2)),
            gain = place(Random<T>(C, 3)), y = place(std::vector<T>(S * 3 * C)),
            att = place(std::vector<T>(H * S * S)), mean = place(std::vector<T>(S)),
            rstd = place(std::vector<T>(S));
  const auto at = [&](Buffer<T>& buffer) { return buffer.data() + offset; };
  std::vector<T> outputs;
  const auto keep = [&](Buffer<T>& buffer, int num_elems) {
    outputs.insert(outputs.end(), at(buffer), at(buffer) + num_elems);
  };
  Scratch<T> scratch;
  layers.LinearForward(at(y), at(x), at(weight), at(gain), nullptr, S, C, C);
  keep(y, S * C);
  layers.NormForward(at(y), at(mean), at(rstd), at(x), at(gain), at(gain), S, C);
  keep(y, S * C);
  layers.AttentionForward(at(y), at(att), at(x), scratch, 1, S, C, H);
  keep(y, S * C);
  layers.GeluForward(at(y), at(x), S * C);
  keep(y, S * C);
  layers.GeluBackward(at(y), at(x), S * C);
  keep(y, S * C);
  const std::vector<uint8_t> targets(S, 1);
  double loss = 0;
  layers.CrossEntropy(&loss, at(x), targets.data(), T(1), 1, S, C);
  keep(x, S * C);
  outputs.push_back(static_cast<T>(loss));
  return outputs;
}

TEST(LayersTest, BitsDoNotDependOnAlignment) {
  const auto test = []<typename T>(const Layers<T>& layers) {
    const std::vector<T> aligned = OutputsAt(layers, 0);
    for (int offset = 1; offset < 16; ++offset) EXPECT_EQ(OutputsAt(layers, offset), aligned) << offset;
  };
  ForVariants<float>(test);
  ForVariants<double>(test);
}

TEST(LayersTest, SelectsAVariantByName) {
  EXPECT_EQ(LayersFor<float>("baseline")->cpu(), "baseline");
  EXPECT_EQ(LayersFor<float>("auto")->cpu(), LayersForThisCpu<float>().cpu());
  EXPECT_EQ(LayersFor<double>("8086"), nullptr);
}

}  // namespace
}  // namespace ddprun::train
