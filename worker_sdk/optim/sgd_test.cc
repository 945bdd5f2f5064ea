#include <cmath>
#include <vector>

#include "ddprun/optim.h"
#include "gtest/gtest.h"
#include "worker_sdk/data/counter_rng.h"

namespace ddprun {
namespace {

// Compares the results with the formula from the header, computed literally in double precision.
TEST(SgdTest, FollowsTheFormula) {
  constexpr size_t kElems = 37;
  for (const SgdOptions& options :
       {SgdOptions{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1},
        SgdOptions{.learning_rate = 0.5, .momentum = 0.5}, SgdOptions{.learning_rate = 0.1, .momentum = 0}}) {
    CounterRng rng(9);
    std::vector<float> values(kElems), grads(kElems);
    std::vector<double> p(kElems), v(kElems);
    for (size_t i = 0; i < kElems; ++i) p[i] = values[i] = static_cast<float>(rng.Normal());
    const auto sgd = MakeSgd({{"p", {kElems}, View(values), View(grads), true}}, options).value();
    for (int64_t step = 1; step <= 50; ++step) {
      const double factor = step < 10 ? 0.1 * static_cast<double>(step) : 1;
      for (size_t i = 0; i < kElems; ++i) {
        grads[i] = static_cast<float>(rng.Normal());
        v[i] = options.momentum * v[i] + grads[i];
        p[i] -= options.learning_rate * factor * (v[i] + options.weight_decay * p[i]);
      }
      sgd->Step({.step = step, .rate_factor = factor});
    }
    for (size_t i = 0; i < kElems; ++i) EXPECT_NEAR(values[i], p[i], 1e-4) << "element " << i;
  }
}

TEST(SgdTest, DecayDoesNotApplyToParametersThatDoNotDecay) {
  std::vector<float> weight{2}, bias{2}, weight_grad{0}, bias_grad{0};
  const auto sgd = MakeSgd({{"weight", {1}, View(weight), View(weight_grad), true},
                            {"bias", {1}, View(bias), View(bias_grad), false}},
                           {.learning_rate = 0.5, .weight_decay = 0.5})
                       .value();
  sgd->Step({.step = 1});
  EXPECT_EQ(weight[0], 1.5f);
  EXPECT_EQ(bias[0], 2.0f);
}

}  // namespace
}  // namespace ddprun
