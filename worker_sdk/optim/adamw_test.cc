#include "worker_sdk/optim/adamw.h"

#include <cmath>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

// Computes the formula from the header literally, in double precision.
struct Reference {
  double p, m = 0, v = 0;
  void Step(const AdamWOptions& o, int t, double g) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double mean = m / (1 - std::pow(o.beta1, t));
    const double square = v / (1 - std::pow(o.beta2, t));
    p -= o.learning_rate * (mean / (std::sqrt(square) + o.epsilon) + o.weight_decay * p);
  }
};

template <typename T>
double WorstErrorAfter(int steps, const AdamWOptions& options) {
  constexpr size_t kElems = 37;
  CounterRng rng(9);
  std::vector<T> params(kElems), grads(kElems), m(kElems), v(kElems);
  std::vector<Reference> expected;
  for (T& p : params) {
    p = static_cast<T>(static_cast<float>(rng.Normal()));
    expected.push_back({.p = static_cast<double>(p)});
  }
  for (int t = 1; t <= steps; ++t) {
    for (size_t i = 0; i < kElems; ++i) {
      // Gradients range from very small to very large; one parameter has gradient 0.
      grads[i] = i == 0 ? T(0) : static_cast<T>(static_cast<float>(rng.Normal() * std::pow(10, i % 9 - 6.0)));
      expected[i].Step(options, t, grads[i]);
    }
    AdamWStep<T>(options, t, grads, std::span(params), std::span(m), std::span(v));
  }
  double worst = 0;
  for (size_t i = 0; i < kElems; ++i) worst = std::max(worst, std::abs(params[i] - expected[i].p));
  return worst;
}

constexpr AdamWOptions kUsual{.learning_rate = 0.01, .weight_decay = 0.1};
constexpr AdamWOptions kOther{
    .learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0};

TEST(AdamWTest, FollowsTheFormula) {
  for (const AdamWOptions& options : {kUsual, kOther}) {
    EXPECT_LT(WorstErrorAfter<double>(1, options), 1e-15);
    EXPECT_LT(WorstErrorAfter<double>(100, options), 1e-13);
    EXPECT_LT(WorstErrorAfter<float>(1, options), 1e-6);
    EXPECT_LT(WorstErrorAfter<float>(100, options), 1e-4);
  }
}

// With bias correction, the size of the first step is the learning rate, regardless of the size of the
// gradient.
TEST(AdamWTest, TheSizeOfTheFirstStepIsTheLearningRate) {
  std::vector<double> params{1, 1}, m(2), v(2);
  const std::vector<double> grads{1e-4, -100};
  AdamWStep<double>({.learning_rate = 0.5}, 1, grads, std::span(params), std::span(m), std::span(v));
  EXPECT_NEAR(params[0], 0.5, 1e-4);
  EXPECT_NEAR(params[1], 1.5, 1e-4);
}

// Decoupled decay does not affect the moments.
TEST(AdamWTest, DecayShrinksAParameterWithoutGradient) {
  std::vector<double> params{2}, m(1), v(1);
  AdamWStep<double>({.learning_rate = 0.1, .weight_decay = 0.5}, 1, std::vector<double>{0}, std::span(params),
                    std::span(m), std::span(v));
  EXPECT_DOUBLE_EQ(params[0], 2 * (1 - 0.1 * 0.5));
  EXPECT_EQ(m[0], 0);
  EXPECT_EQ(v[0], 0);
}

// The product of epsilon and the bias correction is too small for a float.
TEST(AdamWTest, TheSmallestEpsilonLeavesAParameterWithoutGradientUnchanged) {
  const AdamWOptions options{.beta2 = 1 - 1e-15, .epsilon = 1.2e-38};
  std::vector<float> params{2}, m(1), v(1);
  AdamWStep<float>(options, 1, std::vector<float>{0}, std::span(params), std::span(m), std::span(v));
  EXPECT_EQ(params[0], 2);
}

// The class manages memory and names for the function's state. It must not change the arithmetic.
TEST(AdamWTest, OptimizerIsBitEqualToTheFunction) {
  CounterRng rng(5);
  std::vector<float> params(37), grads(37), m(37), v(37);
  for (float& p : params) p = static_cast<float>(rng.Normal());
  std::vector<float> values = params;
  constexpr size_t kWeights = 30;
  const AdamWOptions options{.learning_rate = 3e-3, .beta2 = 0.99, .weight_decay = 0.1};
  const auto parameter = [&](const char* name, size_t begin, int64_t count, bool decays) {
    return Parameter{name,
                     {count},
                     {values.data() + begin, count, DType::kFloat32},
                     {grads.data() + begin, count, DType::kFloat32},
                     decays};
  };
  const auto adamw =
      MakeAdamW({parameter("weight", 0, 30, true), parameter("bias", kWeights, 7, false)}, options).value();
  for (int64_t step = 1; step <= 10; ++step) {
    const double factor = static_cast<double>(step) / 20;
    for (float& g : grads) g = static_cast<float>(rng.Normal());
    adamw->Step({.step = step, .rate_factor = factor});
    AdamWOptions part = options;
    part.learning_rate = options.learning_rate * factor;
    for (const bool decays : {true, false}) {
      const size_t begin = decays ? 0 : kWeights, count = decays ? kWeights : 7;
      part.weight_decay = decays ? options.weight_decay : 0;
      AdamWStep<float>(part, step, std::span(grads).subspan(begin, count),
                       std::span(params).subspan(begin, count), std::span(m).subspan(begin, count),
                       std::span(v).subspan(begin, count));
    }
    ASSERT_EQ(values, params) << "step " << step;
  }
}

}  // namespace
}  // namespace ddprun
