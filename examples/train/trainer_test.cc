#include "examples/train/trainer.h"

#include <stdlib.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns the text of the training that wrote testdata/adamw_snapshot.ddp. The writer was a version of
// `train` without the Optimizer interface, with these flags:
//   train --data=text.txt --layers=1 --heads=1 --width=2 --context=8 --global-batch=2 --cpu=baseline
//     --steps=4 --snapshot-dir=snap
Corpus GoldenCorpus() {
  std::string text;
  for (int i = 0; i < 16; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  const std::string path = testing::TempDir() + "/text.txt";
  EXPECT_EQ(WriteFile(path, text), OkStatus());
  return LoadCorpus(path).value();
}

Options GoldenOptions(const std::string& optimizer = "adamw") {
  Options options;
  options.global_batch = 2;
  options.model = {.layers = 1, .heads = 1, .width = 2, .context = 8};
  options.cpu = "baseline";
  options.optimizer = optimizer;
  return options;
}

std::string GoldenFile() {
  return ReadFile(StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                         "/examples/train/testdata/adamw_snapshot.ddp"))
      .value();
}

class TrainerTest : public testing::Test {
 protected:
  std::unique_ptr<Trainer> MakeTrainer(const Options& options) {
    return std::make_unique<Trainer>(options, corpus_, comm_);
  }

  const Corpus corpus_ = GoldenCorpus();
  const Communicator comm_ = CreateHostCommunicator({}, nullptr).value();
};

// Restores the snapshot and encodes the state again. All names, their order, the shapes and every bit must be
// equal.
TEST_F(TrainerTest, SnapshotOfAnEarlierVersionRoundTrips) {
  const std::string file = GoldenFile();
  const ParsedSnapshot golden = ParseSnapshot(file).value();
  const auto trainer = MakeTrainer(GoldenOptions());
  ASSERT_EQ(trainer->Restore(golden.snapshot), OkStatus());
  EXPECT_EQ(trainer->step(), 4);
  Snapshot again = trainer->State();
  again.world_size = golden.snapshot.world_size;
  again.round = golden.snapshot.round;
  const std::string head = EncodeSnapshotHead(again);
  EXPECT_EQ(head, file.substr(0, head.size()));
  std::string data;
  for (const TensorView& tensor : again.tensors) StrAppend(&data, tensor.bytes);
  EXPECT_EQ(data, file.substr(head.size()));
}

TEST_F(TrainerTest, EveryOptimizerResumesBitIdentically) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    const auto whole = MakeTrainer(GoldenOptions(optimizer)), first = MakeTrainer(GoldenOptions(optimizer)),
               second = MakeTrainer(GoldenOptions(optimizer));
    const std::string untrained = whole->ParametersSha256();
    for (int i = 0; i < 6; ++i) ASSERT_EQ(whole->Step({}), OkStatus());
    for (int i = 0; i < 3; ++i) ASSERT_EQ(first->Step({}), OkStatus());
    ASSERT_EQ(second->Restore(first->State()), OkStatus());
    for (int i = 0; i < 3; ++i) ASSERT_EQ(second->Step({}), OkStatus());
    EXPECT_NE(whole->ParametersSha256(), untrained) << optimizer;
    EXPECT_EQ(second->ParametersSha256(), whole->ParametersSha256()) << optimizer;
  }
}

// 11 sequences in passes of 1, 2, 4, 8 and 11.
TEST_F(TrainerTest, ResultsDoNotDependOnTheNumberOfPasses) {
  Options options = GoldenOptions();
  options.global_batch = 11;
  const auto one_pass = MakeTrainer(options);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(one_pass->Step({}), OkStatus());
  for (const int64_t passes : {2, 3, 4, 6, 11, 1000}) {
    options.accumulate = passes;
    const auto trainer = MakeTrainer(options);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(trainer->Step({}), OkStatus());
    EXPECT_EQ(trainer->loss(), one_pass->loss()) << passes;
    EXPECT_EQ(trainer->ParametersSha256(), one_pass->ParametersSha256()) << passes;
  }
}

// Without momentum in the first step, an update is rate * gradient, so that the updates give the gradients.
TEST_F(TrainerTest, ClipScalesAllGradientsToTheLimit) {
  const auto parameters = [](const Trainer& trainer) {
    std::vector<double> all;
    const Snapshot state = trainer.State();
    for (const TensorView& tensor : state.tensors) {
      if (tensor.name.starts_with("sgd.")) continue;
      const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
      all.insert(all.end(), values, values + tensor.bytes.size() / sizeof(float));
    }
    return all;
  };
  const auto updates = [&](double clip) {
    Options options = GoldenOptions("sgd");
    options.weight_decay = 0;
    options.learning_rate = 1000;  // large updates have small relative rounding errors
    options.clip = clip;
    const auto trainer = MakeTrainer(options);
    std::vector<double> result = parameters(*trainer);
    EXPECT_EQ(trainer->Step({}), OkStatus());
    const std::vector<double> after = parameters(*trainer);
    for (size_t i = 0; i < result.size(); ++i) result[i] -= after[i];
    return result;
  };
  const double rate = 1000 * Warmup(1, 20);
  const std::vector<double> whole = updates(0);
  double squares = 0;
  for (const double update : whole) squares += (update / rate) * (update / rate);
  const double norm = std::sqrt(squares);
  ASSERT_GT(norm, 0);
  EXPECT_EQ(updates(norm * 1.01), whole);
  const std::vector<double> clipped = updates(norm / 8);
  ASSERT_EQ(clipped.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(clipped[i], whole[i] / 8, 1e-4 * norm * rate) << i;
}

TEST_F(TrainerTest, ErrorForAnotherOptimizerNamesFlagTensorAndRemedy) {
  const std::string file = GoldenFile();
  const Status status = MakeTrainer(GoldenOptions("sgd"))->Restore(ParseSnapshot(file).value().snapshot);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--optimizer=sgd"), HasSubstr("tensor sgd.momentum/token_embedding"),
                    HasSubstr("written with optimizer adamw"), HasSubstr("continue with that optimizer")));
}

}  // namespace
}  // namespace ddprun::train
