#include "worker_sdk/optim/adamw.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

// The formula of the header, word for word, in double.
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
      // From very small to very large, one parameter without any gradient.
      grads[i] = i == 0 ? T(0) : static_cast<T>(static_cast<float>(rng.Normal() * std::pow(10, i % 9 - 6.0)));
      expected[i].Step(options, t, grads[i]);
    }
    AdamWStep<T>(options, t, grads, absl::MakeSpan(params), absl::MakeSpan(m), absl::MakeSpan(v));
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

// Bias correction: the first step is as long as the learning rate, however small the gradient.
TEST(AdamWTest, FirstStepHasTheLengthOfTheLearningRate) {
  std::vector<double> params{1, 1}, m(2), v(2);
  const std::vector<double> grads{1e-4, -100};
  AdamWStep<double>({.learning_rate = 0.5}, 1, grads, absl::MakeSpan(params), absl::MakeSpan(m),
                    absl::MakeSpan(v));
  EXPECT_NEAR(params[0], 0.5, 1e-4);
  EXPECT_NEAR(params[1], 1.5, 1e-4);
}

// Decoupled: decay does not pass through the moments.
TEST(AdamWTest, DecayShrinksAParameterWithoutGradient) {
  std::vector<double> params{2}, m(1), v(1);
  AdamWStep<double>({.learning_rate = 0.1, .weight_decay = 0.5}, 1, std::vector<double>{0},
                    absl::MakeSpan(params), absl::MakeSpan(m), absl::MakeSpan(v));
  EXPECT_DOUBLE_EQ(params[0], 2 * (1 - 0.1 * 0.5));
  EXPECT_EQ(m[0], 0);
  EXPECT_EQ(v[0], 0);
}

}  // namespace
}  // namespace ddprun
