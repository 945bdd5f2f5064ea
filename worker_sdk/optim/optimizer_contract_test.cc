// Tests the contract in optim.h and optimizer_state.h for every implementation.
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/optim/optimizer_state.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::span<float> Floats(const Tensor& tensor) {
  return {static_cast<float*>(tensor.data), static_cast<size_t>(tensor.count)};
}

using Factory = std::function<StatusOr<std::unique_ptr<Optimizer>>(std::vector<Parameter>)>;

Factory AdamWFactory() {
  return [](std::vector<Parameter> parameters) {
    return MakeAdamW(std::move(parameters), {.learning_rate = 0.01, .weight_decay = 0.1});
  };
}
Factory SgdFactory(double momentum) {
  return [momentum](std::vector<Parameter> parameters) {
    return MakeSgd(std::move(parameters), {.learning_rate = 0.01, .momentum = momentum, .weight_decay = 0.1});
  };
}

// A model with two tensors, one of them without weight decay. The gradients are a function of the step.
class Training {
 public:
  explicit Training(const Factory& factory) : values_(kElems), grads_(kElems) {
    CounterRng rng(3);
    for (float& value : values_) value = static_cast<float>(rng.Normal());
    optimizer_ = factory(Parameters()).value();
  }

  void StepTo(int64_t last) {
    while (step_ < last) {
      ++step_;
      CounterRng rng(100 + step_);
      for (float& grad : grads_) grad = static_cast<float>(rng.Normal());
      optimizer_->Step({.step = step_, .rate_factor = 1.0 / static_cast<double>(step_)});
    }
  }
  void SkipTo(int64_t step) { step_ = step; }
  // Returns a snapshot of the model's and the optimizer's tensors, like the snapshots of a training program.
  Snapshot Save() {
    Snapshot snapshot{.step = step_};
    for (const Parameter& p : Parameters()) {
      snapshot.tensors.push_back(ViewOf(p.name, p.shape, Floats(p.value)));
    }
    AddOptimizerState(*optimizer_, &snapshot);
    return snapshot;
  }
  Status Load(const Snapshot& snapshot) {
    for (const Parameter& p : Parameters()) EXPECT_EQ(snapshot.Copy(p.name, Floats(p.value)), OkStatus());
    step_ = snapshot.step;
    return LoadOptimizerState(snapshot, optimizer_.get());
  }

  Optimizer& optimizer() { return *optimizer_; }
  const std::vector<float>& values() const { return values_; }

 private:
  static constexpr size_t kElems = 37;

  std::vector<Parameter> Parameters() {
    const auto view = [](std::vector<float>& all, size_t begin, int64_t count) {
      return Tensor{all.data() + begin, count, DType::kFloat32};
    };
    return {{"weight", {5, 6}, view(values_, 0, 30), view(grads_, 0, 30), true},
            {"bias", {7}, view(values_, 30, 7), view(grads_, 30, 7), false}};
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
    EXPECT_EQ(tensor.values.dtype, DType::kFloat32);
    EXPECT_EQ(tensor.values.count, weight ? 30 : 7);
    EXPECT_THAT(Floats(tensor.values), testing::Each(0.0f));
  }
}

// Updates are elementwise, so a tensor may be split anywhere.
TEST_P(OptimizerContractTest, BitsDoNotDependOnHowElementsAreDividedIntoTensors) {
  std::vector<float> whole(37, 0.5f), parts(37, 0.5f), grads(37);
  const auto part = [&](std::vector<float>& values, size_t begin, int64_t count) {
    return Parameter{StrCat("p", begin),
                     {count},
                     {values.data() + begin, count, DType::kFloat32},
                     {grads.data() + begin, count, DType::kFloat32},
                     true};
  };
  const auto one = factory()({part(whole, 0, 37)}).value();
  const auto many =
      factory()({part(parts, 0, 1), part(parts, 1, 19), part(parts, 20, 17), part(parts, 37, 0)}).value();
  for (int64_t step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = std::sin(static_cast<float>(i + step));
    one->Step({.step = step});
    many->Step({.step = step});
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(OptimizerContractTest, ARateFactorOfZeroLeavesTheParametersUnchanged) {
  std::vector<float> values(3, 2.0f), grads(3, 1.0f);
  const auto optimizer = factory()({{"p", {3}, View(values), View(grads), true}}).value();
  optimizer->Step({.step = 1, .rate_factor = 0});
  EXPECT_EQ(values, std::vector<float>(3, 2.0f));
}

TEST_P(OptimizerContractTest, UpdatesInAnyOrderWithGradientsFromElsewhereEqualAStep) {
  std::vector<float> a(40), b(40), grads(40);
  for (size_t i = 0; i < grads.size(); ++i) a[i] = b[i] = std::cos(static_cast<float>(i));
  const auto parameters = [](std::vector<float>& values, Tensor first, Tensor second) {
    return std::vector<Parameter>{{"p", {10}, {values.data(), 10, DType::kFloat32}, first, true},
                                  {"q", {30}, {values.data() + 10, 30, DType::kFloat32}, second, false}};
  };
  const Tensor first{grads.data(), 10, DType::kFloat32}, second{grads.data() + 10, 30, DType::kFloat32};
  const auto stepped = factory()(parameters(a, first, second)).value();
  const auto updated = factory()(parameters(b, {}, {})).value();
  for (int64_t step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = std::sin(static_cast<float>(i + step));
    stepped->Step({.step = step, .rate_factor = 0.5});
    updated->Update(1, second, {.step = step, .rate_factor = 0.5});
    updated->Update(0, first, {.step = step, .rate_factor = 0.5});
  }
  EXPECT_EQ(a, b);
}

TEST_P(OptimizerContractTest, InvalidParametersAreErrorsThatNameTheParameter) {
  std::vector<float> values(3), grads(2);
  std::vector<double> doubles(3);
  const Parameter valid{"head", {3}, View(values), {}, true};
  const auto fault = [&](std::vector<Parameter> parameters) {
    const auto optimizer = factory()(std::move(parameters));
    EXPECT_EQ(optimizer.status().code(), StatusCode::kInvalidArgument);
    return std::string(optimizer.status().message());
  };
  EXPECT_THAT(fault({}), HasSubstr("no parameters"));
  EXPECT_THAT(fault({valid, valid}), HasSubstr("two parameters have the name head"));
  EXPECT_THAT(fault({{"head", {3}, View(values), View(grads), true}}),
              HasSubstr("parameter head: its gradient has 2 elements instead of 3"));
  EXPECT_THAT(fault({valid, {"tied", {2}, {values.data() + 1, 2, DType::kFloat32}, {}, true}}),
              HasSubstr("the value of parameter head and the value of parameter tied share memory"));
  EXPECT_THAT(fault({{"head", {3}, View(doubles), {}, true}}),
              HasSubstr("parameter head is float64: only float32 is supported"));
}

TEST_P(OptimizerContractTest, AMisusedUpdateAborts) {
  std::vector<float> values(3), grads(3);
  const auto optimizer = factory()({{"head", {3}, View(values), {}, true}}).value();
  EXPECT_DEATH(optimizer->Step({}), "parameter head has no memory for its gradient");
  EXPECT_DEATH(optimizer->Update(1, View(grads), {}), "there is no parameter 1");
  EXPECT_DEATH(optimizer->Update(0, View(grads), {.step = 0}), "step < 1");
  grads.pop_back();
  EXPECT_DEATH(optimizer->Update(0, View(grads), {}), "the gradient is 2 float32 instead of 3 float32");
}

// After the broadcast, all ranks continue like the rank that had the state.
TEST_P(OptimizerContractTest, BroadcastCopiesTheStateOfAnyRank) {
  for (const int world : {1, 2, 3, 5}) {
    std::vector<std::vector<float>> values(world);
    const int root = world / 2;
    WithRanks(world, [&](Communicator& comm) {
      Training training(factory());
      training.StepTo(comm.rank() == root ? 5 : 0);
      const std::vector<Parameter>& parameters = training.optimizer().parameters();
      ASSERT_EQ(BroadcastParameters(comm, parameters, root), OkStatus());
      ASSERT_EQ(BroadcastOptimizer(comm, training.optimizer(), root), OkStatus());
      training.SkipTo(5);
      training.StepTo(8);
      values[comm.rank()] = training.values();
    });
    Training alone(factory());
    alone.StepTo(8);
    for (const auto& v : values) EXPECT_EQ(v, alone.values());
  }
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

TEST(BroadcastOptimizerTest, RefusesDifferentOptimizersOnAllRanks) {
  WithRanks(3, [](Communicator& comm) {
    Training training(comm.rank() == 1 ? SgdFactory(0.9) : AdamWFactory());
    EXPECT_EQ(BroadcastOptimizer(comm, training.optimizer(), 0).ToString(),
              "INVALID_ARGUMENT: broadcasting the state of an optimizer: the ranks differ: the optimizer is "
              "adamw on "
              "rank 0 and is sgd on rank 1");
    EXPECT_EQ(BroadcastOptimizer(comm, training.optimizer(), -1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Barrier().Wait(), OkStatus());
  });
}

TEST(BroadcastStateTest, CopiesTensorsOfAnyType) {
  WithRanks(3, [](Communicator& comm) {
    std::vector<unsigned char> bytes(5, static_cast<unsigned char>(comm.rank()));
    std::vector<int64_t> numbers(7, comm.rank());
    const std::vector<StateTensor> state = {{"a", {5}, View(bytes)}, {"b", {7, 1}, View(numbers)}};
    EXPECT_EQ(BroadcastState(comm, state, 2), OkStatus());
    EXPECT_THAT(bytes, testing::Each(2));
    EXPECT_THAT(numbers, testing::Each(2));
    EXPECT_EQ(BroadcastState(comm, {}, 3).message(),
              "broadcasting tensors: rank 0: rank 3 of 3 cannot be the root");
    EXPECT_EQ(BroadcastState(comm, {{comm.rank() == 1 ? "x" : "a", {5}, View(bytes)}}, 0).message(),
              "broadcasting tensors: the ranks differ: state tensor 0 is a on rank 0 and is x on rank 1");
  });
}

TEST(OptimizerOptionsTest, InvalidOptionsAreErrorsThatNameTheOption) {
  std::vector<float> values(1);
  const std::vector<Parameter> p = {{"p", {1}, View(values), {}, true}};
  const auto fault = [](const StatusOr<std::unique_ptr<Optimizer>>& made) {
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  EXPECT_EQ(fault(MakeAdamW(p, {.learning_rate = -1})), "AdamW: learning_rate is -1");
  EXPECT_EQ(fault(MakeAdamW(p, {.learning_rate = NAN})), "AdamW: learning_rate is nan");
  EXPECT_EQ(fault(MakeAdamW(p, {.beta1 = 1})), "AdamW: beta1 is 1");
  EXPECT_EQ(fault(MakeAdamW(p, {.beta2 = -0.5})), "AdamW: beta2 is -0.5");
  EXPECT_EQ(fault(MakeAdamW(p, {.epsilon = 0})), "AdamW: epsilon is 0");
  // These become 0, infinite and 1 as float32.
  EXPECT_EQ(fault(MakeAdamW(p, {.epsilon = 1e-46})), "AdamW: epsilon is 1e-46");
  EXPECT_EQ(fault(MakeAdamW(p, {.epsilon = 1e39})), "AdamW: epsilon is 1e+39");
  EXPECT_THAT(fault(MakeAdamW(p, {.beta1 = 1 - 1e-9})), HasSubstr("AdamW: beta1 is "));
  EXPECT_THAT(fault(MakeAdamW(p, {.beta2 = 1 - 1e-9})), HasSubstr("AdamW: beta2 is "));
  EXPECT_EQ(fault(MakeAdamW(p, {.weight_decay = INFINITY})), "AdamW: weight_decay is inf");
  EXPECT_EQ(fault(MakeSgd(p, {.learning_rate = -1})), "SGD: learning_rate is -1");
  EXPECT_EQ(fault(MakeSgd(p, {.momentum = 1})), "SGD: momentum is 1");
  EXPECT_EQ(fault(MakeSgd(p, {.weight_decay = -1})), "SGD: weight_decay is -1");
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
  for (const StateTensor& tensor : read.optimizer().state())
    EXPECT_THAT(Floats(tensor.values), testing::Each(0.0f));
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
  const auto small = MakeAdamW({{"p", {3}, View(values), View(grads), true}}).value();
  const auto large = MakeAdamW({{"p", {4}, View(others), View(others_grads), true}}).value();
  Snapshot snapshot;
  AddOptimizerState(*small, &snapshot);
  const Status status = LoadOptimizerState(snapshot, large.get());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("adamw.mean/p"));
}

}  // namespace
}  // namespace ddprun
