#include "examples/train/trainer.h"

#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

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
    for (int i = 0; i < 6; ++i) ASSERT_EQ(whole->Step(false), OkStatus());
    for (int i = 0; i < 3; ++i) ASSERT_EQ(first->Step(false), OkStatus());
    ASSERT_EQ(second->Restore(first->State()), OkStatus());
    for (int i = 0; i < 3; ++i) ASSERT_EQ(second->Step(false), OkStatus());
    EXPECT_NE(whole->ParametersSha256(), untrained) << optimizer;
    EXPECT_EQ(second->ParametersSha256(), whole->ParametersSha256()) << optimizer;
  }
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
