// Tests the contract in optimizer.h and optimizer_state.h for every implementation.
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/optim/adamw.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/optim/optimizer_state.h"
#include "worker_sdk/optim/sgd.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Factory = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterView>)>;

Factory AdamWFactory() {
  return [](std::vector<ParameterView> parameters) {
    return std::make_unique<AdamW>(std::move(parameters),
                                   AdamWOptions{.learning_rate = 0.01, .weight_decay = 0.1});
  };
}
Factory SgdFactory(double momentum) {
  return [momentum](std::vector<ParameterView> parameters) {
    return std::make_unique<Sgd>(
        std::move(parameters), SgdOptions{.learning_rate = 0.01, .momentum = momentum, .weight_decay = 0.1});
  };
}

// A model with two tensors, one of them without weight decay. The gradients are a function of the step.
class Training {
 public:
  explicit Training(const Factory& factory) : values_(kElems), grads_(kElems) {
    CounterRng rng(3);
    for (float& value : values_) value = static_cast<float>(rng.Normal());
    optimizer_ = factory(Views());
  }

  void StepTo(int64_t last) {
    while (step_ < last) {
      ++step_;
      CounterRng rng(100 + step_);
      for (float& grad : grads_) grad = static_cast<float>(rng.Normal());
      optimizer_->Step({.step = step_, .rate_factor = 1.0 / static_cast<double>(step_)});
    }
  }
  // Returns a snapshot of the model's and the optimizer's tensors, like the snapshots of a training program.
  Snapshot Save() {
    Snapshot snapshot{.step = step_};
    for (const ParameterView& p : Views()) snapshot.tensors.push_back(ViewOf(p.name, p.shape, p.values));
    AddOptimizerState(*optimizer_, &snapshot);
    return snapshot;
  }
  Status Load(const Snapshot& snapshot) {
    for (const ParameterView& p : Views()) EXPECT_EQ(snapshot.Copy(p.name, p.values), OkStatus());
    step_ = snapshot.step;
    return LoadOptimizerState(snapshot, optimizer_.get());
  }

  Optimizer& optimizer() { return *optimizer_; }
  const std::vector<float>& values() const { return values_; }

 private:
  static constexpr size_t kElems = 37, kWeights = 30;

  std::vector<ParameterView> Views() {
    const auto values = std::span(values_);
    const auto grads = std::span(grads_);
    return {{"weight", {5, 6}, values.first(kWeights), grads.first(kWeights), true},
            {"bias", {7}, values.subspan(kWeights), grads.subspan(kWeights), false}};
  }

  std::vector<float> values_, grads_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t step_ = 0;
};

std::vector<std::string> StateNames(Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const StateTensor& tensor : optimizer.state()) names.push_back(tensor.name);
  return names;
}

class OptimizerContractTest : public testing::TestWithParam<std::pair<const char*, Factory>> {
 protected:
  const Factory& factory() { return GetParam().second; }
};

TEST_P(OptimizerContractTest, StateIsAllThatTheNextStepNeeds) {
  Training whole(factory()), first(factory()), second(factory());
  whole.StepTo(8);
  first.StepTo(5);
  ASSERT_EQ(second.Load(first.Save()), OkStatus());
  second.StepTo(8);
  EXPECT_EQ(second.values(), whole.values());
}

TEST_P(OptimizerContractTest, StateIsNamedAfterTheOptimizerShapedLikeTheParametersAndZeroAtFirst) {
  Training training(factory());
  for (const StateTensor& tensor : training.optimizer().state()) {
    EXPECT_TRUE(tensor.name.starts_with(StrCat(training.optimizer().name(), "."))) << tensor.name;
    const bool weight = tensor.name.ends_with("/weight");
    EXPECT_TRUE(weight || tensor.name.ends_with("/bias")) << tensor.name;
    EXPECT_EQ(tensor.shape, (weight ? std::vector<int64_t>{5, 6} : std::vector<int64_t>{7}));
    EXPECT_EQ(tensor.values.size(), weight ? 30 : 7);
    EXPECT_THAT(tensor.values, testing::Each(0.0f));
  }
}

// Updates are elementwise, so a tensor may be split anywhere.
TEST_P(OptimizerContractTest, BitsDoNotDependOnHowElementsAreDividedIntoTensors) {
  std::vector<float> whole(37, 0.5f), parts(37, 0.5f), grads(37);
  const auto view = [&](std::vector<float>& values, size_t begin, size_t count) {
    return ParameterView{.name = StrCat("p", begin),
                         .shape = {static_cast<int64_t>(count)},
                         .values = std::span(values).subspan(begin, count),
                         .grads = std::span(grads).subspan(begin, count)};
  };
  const auto one = factory()({view(whole, 0, 37)});
  const auto many =
      factory()({view(parts, 0, 1), view(parts, 1, 19), view(parts, 20, 17), view(parts, 37, 0)});
  for (int64_t step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = std::sin(static_cast<float>(i + step));
    one->Step({.step = step});
    many->Step({.step = step});
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(OptimizerContractTest, ARateFactorOfZeroLeavesTheParametersUnchanged) {
  std::vector<float> values(3, 2.0f), grads(3, 1.0f);
  const auto optimizer = factory()({{"p", {3}, std::span(values), grads, true}});
  optimizer->Step({.step = 1, .rate_factor = 0});
  EXPECT_EQ(values, std::vector<float>(3, 2.0f));
}

TEST_P(OptimizerContractTest, AParameterNeedsOneGradientForEachValue) {
  std::vector<float> values(3), grads(2);
  EXPECT_DEATH(factory()({{"head", {3}, std::span(values), grads}}),
               "parameter head: 3 values and 2 gradients");
}

TEST_P(OptimizerContractTest, NamesOfParametersAreUnique) {
  std::vector<float> values(1), grads(1);
  const ParameterView p{"head", {1}, std::span(values), grads};
  EXPECT_DEATH(factory()({p, p}), "two parameters have the name head");
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerContractTest,
                         testing::Values(std::pair{"AdamW", AdamWFactory()},
                                         std::pair{"SgdMomentum", SgdFactory(0.9)},
                                         std::pair{"SgdPlain", SgdFactory(0)}),
                         [](const auto& info) { return info.param.first; });

// The names are part of the snapshot format; see docs/snapshot_format.md.
TEST(OptimizerStateTest, NamesOfEveryOptimizer) {
  EXPECT_THAT(
      StateNames(Training(AdamWFactory()).optimizer()),
      ElementsAre("adamw.mean/weight", "adamw.mean/bias", "adamw.square/weight", "adamw.square/bias"));
  EXPECT_THAT(StateNames(Training(SgdFactory(0.9)).optimizer()),
              ElementsAre("sgd.momentum/weight", "sgd.momentum/bias"));
  EXPECT_THAT(StateNames(Training(SgdFactory(0)).optimizer()), IsEmpty());
}

TEST(OptimizerStateTest, LoadingAnotherOptimizersSnapshotNamesTheMissingTensorAndTheRemedy) {
  Training written(AdamWFactory()), read(SgdFactory(0.9));
  written.StepTo(2);
  const Status status = read.Load(written.Save());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      status.message(),
      "it lacks tensor sgd.momentum/weight of optimizer sgd: it was written with optimizer adamw; continue "
      "with that optimizer and its options, or start from step 0 without this snapshot");
  for (const StateTensor& tensor : read.optimizer().state()) EXPECT_THAT(tensor.values, testing::Each(0.0f));
}

TEST(OptimizerStateTest, LoadingASnapshotWithoutStateFails) {
  Training written(SgdFactory(0)), read(AdamWFactory());
  EXPECT_THAT(std::string(read.Load(written.Save()).message()),
              AllOf(HasSubstr("it lacks tensor adamw.mean/weight of optimizer adamw"),
                    HasSubstr("written without optimizer state")));
}

// If such state were ignored, training would continue without momentum and without an error.
TEST(OptimizerStateTest, StateThatTheOptimizerDoesNotUseIsRefused) {
  Training written(AdamWFactory()), read(SgdFactory(0));
  const Status status = read.Load(written.Save());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tensor adamw.mean/weight of optimizer adamw"),
                    HasSubstr("optimizer sgd does not use"), HasSubstr("continue with that optimizer")));
}

TEST(OptimizerStateTest, TensorsOfTheProgramMayHaveSlashesInTheirNames) {
  Training written(SgdFactory(0.9)), read(SgdFactory(0.9));
  written.StepTo(2);
  Snapshot snapshot = written.Save();
  const std::vector<float> more(7, 1.0f);
  // The last two names resemble the names of state tensors, but one has an unknown parameter, and the other
  // has an empty optimizer name.
  for (const char* name : {"encoder/weight", "ema/bias", "bias/x", "ema.shadow/other", ".x/bias"}) {
    snapshot.tensors.push_back(ViewOf(name, {7}, more));
  }
  EXPECT_EQ(read.Load(snapshot), OkStatus());
  snapshot.tensors.push_back(ViewOf("ema.shadow/bias", {7}, more));
  EXPECT_THAT(std::string(read.Load(snapshot).message()), HasSubstr("ema.shadow/bias of optimizer ema"));
}

TEST(OptimizerStateTest, StateOfADifferentSizeIsRefused) {
  std::vector<float> values(3), grads(3), others(4), others_grads(4);
  AdamW small({{"p", {3}, std::span(values), grads}}, {});
  AdamW large({{"p", {4}, std::span(others), others_grads}}, {});
  Snapshot snapshot;
  AddOptimizerState(small, &snapshot);
  const Status status = LoadOptimizerState(snapshot, &large);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("adamw.mean/p"));
}

}  // namespace
}  // namespace ddprun
