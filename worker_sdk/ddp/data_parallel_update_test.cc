// Tests what DataParallel does with reduced gradients: compression, clipping, and updates by an optimizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <limits>
#include <string>

#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/comm/testing/reference.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/testing/model.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kCounts[] = {3, 1000, 0, 70, 5000, 1, 17};

FakeModel Floats() {
  FakeModel model;
  for (size_t i = 0; i < std::size(kCounts); ++i) model.Add(kCounts[i], DType::kFloat32, i % 3 == 0);
  return model;
}

class DataParallelUpdateTest : public testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelUpdateTest, testing::Values(1, 2, 3, 5),
                         [](const auto& info) { return StrCat(info.param); });

// Converts the gradients of each rank, reduces 16 bits along the tree, and converts back.
TEST_P(DataParallelUpdateTest, CompressionEqualsItsReference) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
    for (const Compression compression : {Compression::kFloat16, Compression::kBFloat16}) {
      const DType type = compression == Compression::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
      const bool divides_first = op == ReduceOp::kMean && type == DType::kFloat16;
      WithRanks(world(), [&](Communicator& comm) {
        const FakeModel model = Floats();
        auto dp = DataParallel::Create(comm, model.parameters(), {.op = op, .compression = compression});
        ASSERT_TRUE(dp.ok()) << dp.status();
        ASSERT_EQ(StepInOrder(*dp, comm.rank(), 1, FillRandom, Backwards(*dp)), OkStatus());
        for (size_t i = 0; i < model.parameters().size(); ++i) {
          std::vector<std::vector<char>> inputs;
          std::vector<float> gradient(kCounts[i]);
          for (int r = 0; r < world(); ++r) {
            FillRandom(View(gradient), r, i, 1);
            inputs.emplace_back(2 * gradient.size());
            Compress(View(gradient), divides_first ? static_cast<float>(world()) : 1, nullptr,
                     {inputs.back().data(), kCounts[i], type});
          }
          const std::vector<char> reduced =
              ReferenceReduction(type, divides_first ? ReduceOp::kSum : op, inputs);
          Decompress({reduced.data(), kCounts[i], type}, View(gradient));
          ASSERT_EQ(Bytes(dp->gradient(i)), Bytes(View(gradient))) << "gradient " << i;
        }
      });
    }
  }
}

// The mean of large float16 gradients does not overflow, although their sum would.
TEST_P(DataParallelUpdateTest, AMeanInFloat16DoesNotOverflow) {
  WithRanks(world(), [](Communicator& comm) {
    FakeModel model;
    model.Add(4);
    auto dp = DataParallel::Create(comm, model.parameters(), {.compression = Compression::kFloat16});
    ASSERT_TRUE(dp.ok()) << dp.status();
    dp->Begin();
    for (int e = 0; e < 4; ++e) SetElement(dp->gradient(0), e, e == 3 ? 1e6 : 60000);
    dp->Ready(0);
    ASSERT_EQ(dp->Finish(), OkStatus());
    EXPECT_NEAR(Elements(dp->gradient(0))[0], 60000, 60);
    if (comm.size() < 16) {  // 1e6 / 16 fits
      EXPECT_TRUE(std::isinf(Elements(dp->gradient(0))[3]));
    }
  });
}

// With a constant gradient, the sum over many steps approaches the exact one; without feedback each step has the same
// error.
TEST_P(DataParallelUpdateTest, ErrorFeedbackReducesTheAccumulatedError) {
  constexpr int64_t kSteps = 100;
  const auto error = [&](bool feedback, Compression compression) {
    std::vector<double> errors(world());
    WithRanks(world(), [&](Communicator& comm) {
      FakeModel model;
      model.Add(500);
      auto dp = DataParallel::Create(
          comm, model.parameters(),
          {.op = ReduceOp::kSum, .compression = compression, .error_feedback = feedback});
      ASSERT_TRUE(dp.ok()) << dp.status();
      std::vector<double> sums(500), exact(500);
      for (int64_t step = 1; step <= kSteps; ++step) {
        dp->Begin();
        for (int r = 0; r < comm.size(); ++r) {
          std::vector<float> gradient(500);
          FillRandom(View(gradient), r, 0, 0);
          for (int e = 0; e < 500; ++e) exact[e] += gradient[e];
        }
        FillRandom(dp->gradient(0), comm.rank(), 0, 0);
        dp->Ready(0);
        ASSERT_EQ(dp->Finish(), OkStatus());
        for (int e = 0; e < 500; ++e) sums[e] += Elements(dp->gradient(0))[e];
      }
      for (int e = 0; e < 500; ++e) errors[comm.rank()] += std::abs(sums[e] - exact[e]);
    });
    return errors[0];
  };
  // The ranks' own roundings are fed back; those inside the reduction are not, so the gain is smaller with more ranks.
  const double gain = world() == 1 ? 20 : 1.5;
  EXPECT_LT(error(true, Compression::kBFloat16) * gain, error(false, Compression::kBFloat16));
}

// Minimizes (x - target)^2 with compressed gradients. Without feedback the small gradients of one rank vanish in float16.
TEST(ErrorFeedbackTest, SmallGradientsAreNotLost) {
  const auto distance = [](bool feedback) {
    double distance = 0;
    WithRanks(2, [&](Communicator& comm) {
      FakeModel model;
      model.Add(1);
      const auto sgd = MakeSgd(model.parameters(), {.learning_rate = 5e5, .momentum = 0}).value();
      auto dp = DataParallel::Create(comm, model.parameters(),
                                     {.compression = Compression::kFloat16, .error_feedback = feedback});
      ASSERT_TRUE(dp.ok()) << dp.status();
      for (int64_t step = 1; step <= 200; ++step) {
        dp->Begin();
        const double x = Elements(model.parameters()[0].value)[0];
        SetElement(dp->gradient(0), 0, 4e-8 * (x - 1));  // half of float16's smallest number is 3e-8
        dp->Ready(0);
        ASSERT_EQ(dp->Finish({.optimizer = sgd.get(), .step = {.step = step}}), OkStatus());
      }
      if (comm.rank() == 0) distance = std::abs(model.Values(0)[0] - 1);
    });
    return distance;
  };
  EXPECT_EQ(distance(false), 1);  // no step has moved x
  EXPECT_LT(distance(true), 0.5);
}

// What compression left for a parameter is kept while the parameter is unused.
TEST(ErrorFeedbackTest, UnusedParametersKeepWhatIsLeft) {
  const Communicator comm(std::make_shared<CountingGroup>(1));
  FakeModel model;
  model.Add(1);
  DataParallel dp =
      DataParallel::Create(
          comm, model.parameters(),
          {.compression = Compression::kBFloat16, .error_feedback = true, .unused_parameters = true})
          .value();
  const auto step = [&](bool ready) {
    dp.Begin();
    SetElement(dp.gradient(0), 0, 1 + 1.0 / 512);  // the last bit is below bfloat16's precision
    if (ready) dp.Ready(0);
    EXPECT_EQ(dp.Finish(), OkStatus());
    return Elements(dp.gradient(0))[0];
  };
  EXPECT_EQ(step(true), 1);
  EXPECT_EQ(step(false), 0);
  EXPECT_EQ(step(true), 1);
  EXPECT_EQ(step(true), 1 + 1.0 / 128);
}

// The values of all parameters after five steps, by `train`: one step with the given arguments.
std::vector<std::vector<float>> Train(
    int world, const DataParallelOptions& options, bool adam,
    const std::function<void(DataParallel&, Optimizer&, int rank, int64_t step)>& train) {
  std::vector<std::vector<std::vector<float>>> values(world);
  WithRanks(world, [&](Communicator& comm) {
    const FakeModel model = Floats();
    for (size_t i = 0; i < model.parameters().size(); ++i) FillRandom(model.parameters()[i].value, 0, i, 99);
    const auto optimizer = adam ? MakeAdamW(model.parameters(), {.weight_decay = 0.1}).value()
                                : MakeSgd(model.parameters()).value();
    auto dp = DataParallel::Create(comm, model.parameters(), options);
    ASSERT_TRUE(dp.ok()) << dp.status();
    for (int64_t step = 1; step <= 5; ++step) train(*dp, *optimizer, comm.rank(), step);
    for (size_t i = 0; i < model.parameters().size(); ++i) values[comm.rank()].push_back(model.Values(i));
  });
  EXPECT_THAT(values, Each(values[0]));  // equal on all ranks
  return values[0];
}

TEST_P(DataParallelUpdateTest, UpdatesInFinishEqualSeparateUpdates) {
  for (const bool adam : {true, false}) {
    const auto expected =
        Train(world(), {}, adam, [](DataParallel& dp, Optimizer& optimizer, int rank, int64_t step) {
          ASSERT_EQ(StepInOrder(dp, rank, step, FillRandom, Backwards(dp)), OkStatus());
          for (size_t i = 0; i < dp.parameters().size(); ++i) {
            optimizer.Update(i, dp.gradient(i), {.step = step, .rate_factor = 0.5});
          }
        });
    for (const int64_t bucket_bytes : {0, 1, 5000}) {
      const auto fused = [&](double clip_norm) {
        return Train(world(), {.bucket_bytes = bucket_bytes}, adam,
                     [&](DataParallel& dp, Optimizer& optimizer, int rank, int64_t step) {
                       ASSERT_EQ(StepInOrder(dp, rank, step, FillRandom, Backwards(dp),
                                             {.optimizer = &optimizer,
                                              .step = {.step = step, .rate_factor = 0.5},
                                              .clip_norm = clip_norm}),
                                 OkStatus());
                     });
      };
      EXPECT_EQ(fused(0), expected);
      EXPECT_EQ(fused(std::numeric_limits<double>::infinity()), expected);
    }
  }
}

TEST_P(DataParallelUpdateTest, ClippingEqualsAFloat64Reference) {
  const std::vector<int64_t> plans = {0, 1, 5000};
  std::vector<double> norms(plans.size());
  for (size_t k = 0; k < plans.size(); ++k) {
    WithRanks(world(), [&](Communicator& comm) {
      const FakeModel model = Floats();
      auto dp = DataParallel::Create(comm, model.parameters(), {.bucket_bytes = plans[k]});
      ASSERT_TRUE(dp.ok()) << dp.status();
      for (int64_t step = 1; step <= 3; ++step) {
        ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillRandom, Backwards(*dp)), OkStatus());
        EXPECT_EQ(dp->norm(), 0);
        std::vector<std::vector<double>> whole;
        double sum = 0;
        for (size_t i = 0; i < model.parameters().size(); ++i) {
          whole.push_back(Elements(dp->gradient(i)));
          for (const double g : whole.back()) sum += g * g;
        }
        const double norm = std::sqrt(sum), limit = step == 2 ? 2 * norm : 0.1;  // step 2 does not clip
        ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillRandom, Backwards(*dp), {.clip_norm = limit}),
                  OkStatus());
        EXPECT_NEAR(dp->norm(), norm, 1e-12 * norm);
        const double factor = step == 2 ? 1 : limit / dp->norm();
        for (size_t i = 0; i < model.parameters().size(); ++i) {
          const std::vector<double> clipped = Elements(dp->gradient(i));
          for (size_t e = 0; e < clipped.size(); ++e) {
            ASSERT_EQ(clipped[e], static_cast<float>(whole[i][e] * factor));
          }
        }
        if (comm.rank() == 0) norms[k] = dp->norm();
      }
    });
  }
  EXPECT_THAT(norms, Each(norms[0]));
}

TEST_P(DataParallelUpdateTest, ANormThatIsNotFiniteUpdatesNothing) {
  WithRanks(world(), [](Communicator& comm) {
    const FakeModel model = Floats();
    const auto sgd = MakeSgd(model.parameters()).value();
    auto dp = DataParallel::Create(comm, model.parameters());
    ASSERT_TRUE(dp.ok()) << dp.status();
    dp->Begin();
    for (const size_t i : Backwards(*dp)) {
      FillRandom(dp->gradient(i), comm.rank(), i, 1);
      if (i == 4 && comm.rank() == comm.size() - 1) SetElement(dp->gradient(i), 77, NAN);
      dp->Ready(i);
    }
    ASSERT_EQ(dp->Finish({.optimizer = sgd.get(), .clip_norm = 1}), OkStatus());
    EXPECT_TRUE(std::isnan(dp->norm()));
    for (size_t i = 0; i < model.parameters().size(); ++i) EXPECT_THAT(model.Values(i), Each(0.0f));
    for (const StateTensor& tensor : sgd->state()) EXPECT_THAT(Elements(tensor.values), Each(0));
    EXPECT_TRUE(std::isnan(Elements(dp->gradient(4))[77]));
    EXPECT_TRUE(std::isfinite(Elements(dp->gradient(4))[76]));
  });
}

TEST_P(DataParallelUpdateTest, UnusedParametersAreNotUpdated) {
  WithRanks(world(), [](Communicator& comm) {
    const FakeModel model = Floats();
    for (size_t i = 0; i < model.parameters().size(); ++i) FillWhole(model.parameters()[i].value, 0, i, 9);
    const auto adamw = MakeAdamW(model.parameters(), {.weight_decay = 0.5}).value();
    auto dp = DataParallel::Create(comm, model.parameters(), {.unused_parameters = true});
    ASSERT_TRUE(dp.ok()) << dp.status();
    const std::vector<float> before = model.Values(3);
    for (const double clip_norm : {0.0, 0.5}) {
      dp->Begin();
      for (size_t i = 0; i < model.parameters().size(); ++i) {
        FillRandom(dp->gradient(i), comm.rank(), i, 1);
        if (i != 3 && (i != 1 || comm.rank() == 0)) dp->Ready(i);
      }
      const std::vector<float> used = model.Values(1);
      ASSERT_EQ(dp->Finish({.optimizer = adamw.get(), .clip_norm = clip_norm}), OkStatus());
      EXPECT_EQ(model.Values(3), before);
      EXPECT_NE(model.Values(1), used);
      EXPECT_THAT(dp->unused(), ElementsAre(3));
    }
  });
}

// Whether a rank has a gradient in a step: parameter 3 has none in even steps, and 4 only on one rank.
bool Uses(int rank, size_t parameter, int64_t step) {
  return (parameter != 3 || step % 2 == 1) && (parameter != 4 || rank == 0);
}

// The gradients of a step, as the options define them, computed for all ranks on one.
class ReferenceStep {
 public:
  ReferenceStep(int world, const DataParallelOptions& options) : world_(world), options_(options) {
    for (const int64_t count : kCounts) residuals_.emplace_back(world, std::vector<float>(count));
  }
  std::vector<float> Gradient(size_t i, int64_t step) {
    const bool half = options_.compression == Compression::kFloat16;
    const DType type = half ? DType::kFloat16 : DType::kBFloat16;
    std::vector<std::vector<char>> inputs;
    for (int r = 0; r < world_; ++r) {
      std::vector<float> own(kCounts[i]);
      inputs.emplace_back(2 * own.size());
      if (!Uses(r, i, step)) continue;
      for (const int64_t pass : {step, step + 50}) {
        std::vector<float> more(own.size());
        FillRandom(View(more), r, i, pass);
        for (size_t e = 0; e < own.size(); ++e) own[e] += more[e];
      }
      Compress(View(own), half ? static_cast<float>(world_) : 1,
               options_.error_feedback ? residuals_[i][r].data() : nullptr,
               {inputs.back().data(), kCounts[i], type});
    }
    const std::vector<char> reduced =
        ReferenceReduction(type, half ? ReduceOp::kSum : ReduceOp::kMean, inputs);
    std::vector<float> gradient(kCounts[i]);
    Decompress({reduced.data(), kCounts[i], type}, View(gradient));
    return gradient;
  }

 private:
  const int world_;
  const DataParallelOptions options_;
  std::vector<std::vector<std::vector<float>>> residuals_;  // by parameter and rank
};

// Two passes per step, gradients that some or all ranks leave out, compression, clipping and an optimizer together.
TEST_P(DataParallelUpdateTest, AllOptionsTogetherEqualAReference) {
  for (const Compression compression : {Compression::kFloat16, Compression::kBFloat16}) {
    for (const int64_t bucket_bytes : {0, 1, 3000}) {
      const DataParallelOptions options{.bucket_bytes = bucket_bytes,
                                        .compression = compression,
                                        .error_feedback = bucket_bytes != 1,
                                        .unused_parameters = true};
      WithRanks(world(), [&](Communicator& comm) {
        const FakeModel model = Floats(), expected = Floats();
        const auto adamw = MakeAdamW(model.parameters(), {.weight_decay = 0.1}).value();
        const auto reference = MakeAdamW(expected.parameters(), {.weight_decay = 0.1}).value();
        auto dp = DataParallel::Create(comm, model.parameters(), options);
        ASSERT_TRUE(dp.ok()) << dp.status();
        ReferenceStep whole(world(), options);
        for (int64_t step = 1; step <= 5; ++step) {
          const double clip_norm = step == 4 ? 0 : 0.5;
          dp->Begin();
          dp->ZeroGradients();
          for (const int64_t pass : {step, step + 50}) {
            for (const size_t i : Backwards(*dp)) {
              if (!Uses(comm.rank(), i, step)) continue;
              std::vector<float> more(kCounts[i]);
              FillRandom(View(more), comm.rank(), i, pass);
              auto* gradient = static_cast<float*>(dp->gradient(i).data);
              for (size_t e = 0; e < more.size(); ++e) gradient[e] += more[e];
              if (pass != step) dp->Ready(i);
            }
          }
          const OptimizerStep at{.step = step};
          ASSERT_EQ(dp->Finish({.optimizer = adamw.get(), .step = at, .clip_norm = clip_norm}), OkStatus());
          std::vector<std::vector<float>> gradients;
          GlobalNorm norm;
          for (size_t i = 0; i < std::size(kCounts); ++i) {
            gradients.push_back(whole.Gradient(i, step));
            norm.Add(View(gradients[i]));
          }
          ASSERT_EQ(dp->norm(), clip_norm > 0 ? norm.value() : 0);
          for (size_t i = 0; i < std::size(kCounts); ++i) {
            if (clip_norm > 0 && norm.value() > clip_norm)
              Multiply(clip_norm / norm.value(), View(gradients[i]));
            ASSERT_EQ(Bytes(dp->gradient(i)), Bytes(View(gradients[i]))) << "gradient " << i;
            if (i != 3 || step % 2 == 1) reference->Update(i, View(gradients[i]), at);
            ASSERT_EQ(model.Values(i), expected.Values(i)) << "parameter " << i << ", step " << step;
          }
          if (step % 2 == 1) {
            EXPECT_THAT(dp->unused(), testing::IsEmpty());
          } else {
            EXPECT_THAT(dp->unused(), ElementsAre(3));
          }
        }
      });
    }
  }
}

TEST(DataParallelUpdateErrorTest, InvalidArgumentsOfFinishFailAllRanks) {
  for (const bool other_optimizer : {true, false}) {
    std::latch created(2);
    WithRanks(2, [&](Communicator& comm) {
      const FakeModel model = Floats(), other = Floats();
      auto dp = DataParallel::Create(comm, model.parameters());
      created.arrive_and_wait();
      ASSERT_TRUE(dp.ok()) << dp.status();
      const bool invalid = comm.rank() == 1;
      const auto sgd = MakeSgd(invalid && other_optimizer ? other.parameters() : model.parameters()).value();
      const Status status =
          StepInOrder(*dp, comm.rank(), 1, FillRandom, Backwards(*dp),
                      {.optimizer = sgd.get(), .clip_norm = invalid && !other_optimizer ? -1.0 : 1.0});
      // The other rank may have finished its step before.
      const Status error = invalid ? status : comm.Barrier().Wait();
      EXPECT_EQ(error.code(), invalid ? StatusCode::kInvalidArgument : StatusCode::kAborted) << error;
      EXPECT_THAT(error.message(),
                  HasSubstr(other_optimizer ? "the optimizer is for other parameters" : "clip_norm is -1"));
    });
  }
}

}  // namespace
}  // namespace ddprun
