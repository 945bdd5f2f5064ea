// The training itself: one optimizer step of all ranks together, and its state as a snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train/corpus.h"
#include "examples/train/model/buffer.h"
#include "examples/train/model/model.h"
#include "examples/train/model/tree_sum.h"
#include "examples/train/options.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/data/sampler.h"
#include "worker_sdk/ddp/data_parallel.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun::train {

// Every rank has the whole model and computes the gradient of its span of the global batch, sequence by
// sequence, summed as tree_sum.h says; the buckets' all-reduce runs while the last sequence's backward pass
// goes on. How far the state after a step depends on the number of ranks:
// docs/decisions/0003-reduction-order.md.
//   Threads: one caller at a time.
//   Owns:    nothing that is passed in; all of it lives longer.
class Trainer {
 public:
  // At the start of a training.
  //   REQUIRES: corpus.NumSamples(context) >= 1; global_batch >= world size; LayersFor<float>(cpu) is there.
  Trainer(const Options& options, const Corpus& corpus, Communicator* comm);

  // This rank's samples of the next update, and where in the order of the samples they begin.
  struct Part {
    int64_t epoch = 0;
    int64_t position = 0;
    std::vector<int64_t> samples{};
  };
  [[nodiscard]] Part NextPart() const;

  // One update. All ranks call it equally often. `wish`: this rank wishes something, such as a snapshot,
  // after this update; wished() then tells all ranks that one did.
  //   Errors: Pending::Wait's; kFailedPrecondition: the loss is not finite. After one the state is of no use.
  absl::Status Step(bool wish);

  [[nodiscard]] int64_t step() const { return step_; }  // updates done
  [[nodiscard]] double loss() const {
    return loss_;
  }  // of the last one's batch, nats a byte; 0 before the first

  [[nodiscard]] bool wished() const { return wished_; }  // by any rank, in the last update

  // The state, as views of this object that hold until the next Step. The caller adds world size and round.
  [[nodiscard]] Snapshot State() const;

  // Continues from `snapshot`.
  //   Errors: kFailedPrecondition: of another training, naming the flag that differs, or of another optimizer,
  //           naming the tensor that is missing; others: the writer was wrong. After an error the state is of
  //           no use.
  absl::Status Restore(const Snapshot& snapshot);

  // In hexadecimal, over all parameters.
  [[nodiscard]] std::string ParametersSha256() const;
  // What all ranks must have in common before a step: name -> value.
  [[nodiscard]] std::map<std::string, std::string> Facts() const;

 private:
  // What a snapshot and the options must agree on: flag -> value.
  [[nodiscard]] std::map<std::string, std::string> Identity() const;
  // The gradient's all-reduce is under way when it returns.
  void ComputeGradients();

  const Options options_;
  const Corpus& corpus_;
  Communicator* const comm_;
  const BatchSpan span_;  // this rank's places of the global batch

  CounterRng rng_;
  Sampler sampler_;
  Gpt<float> model_;
  int64_t step_ = 0;
  double loss_ = 0;
  bool wished_ = false;

  Buffer<float> grads_;                   // as the parameters
  std::unique_ptr<Optimizer> optimizer_;  // of both
  TreeSum<float> grad_sum_;
  TreeSum<double> loss_sum_;
  // This rank's, then the sums over all ranks.
  enum StepSum { kLoss, kWishes, kNumStepSums };
  std::array<double, kNumStepSums> step_sums_ = {};
  std::unique_ptr<Pending> sums_reduced_;
  DataParallel<float> data_parallel_;
};

// The optimizers that --optimizer names.

// REQUIRES: options passed ParseOptions.
std::unique_ptr<Optimizer> MakeOptimizer(const Options& options, std::vector<ParameterView> parameters);

}  // namespace ddprun::train
