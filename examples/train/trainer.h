// Training: optimizer steps over all ranks, and the training state as a snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "examples/train/corpus.h"
#include "examples/train/model/tree_sum.h"
#include "examples/train/options.h"
#include "examples/train/replica.h"
#include "examples/train/trace.h"
#include "worker_sdk/data/counter_rng.h"
#include "worker_sdk/data/sampler.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun::train {

// Every rank has the whole model and computes the gradient of its span of the global batch, in one pass or in several
// (--accumulate), summed over sequences in the order of tree_sum.h, in the buckets of DataParallel. The all-reduce of
// the buckets overlaps with the backward part of the last pass. docs/decisions/0003-reduction-order.md states how
// results depend on the number of ranks; they do not depend on the number of passes.
//   Threads: one caller at a time.
//   Owns:    none of the arguments; `corpus` and the trace must outlive the trainer.
class Trainer {
 public:
  // Starts at step 0 with initial parameters.
  //   trace: gets the events of all steps; may be null.
  //   REQUIRES: corpus.NumSamples(context) >= 1; global_batch >= world size; LayersFor<float>(cpu) != null.
  Trainer(const Options& options, const Corpus& corpus, Communicator comm, TraceLog* trace = nullptr);
  // The same with the result of MakeReplica(options, ShapeFor(options, comm), comm.device()).
  Trainer(const Options& options, const Corpus& corpus, std::unique_ptr<Replica> replica, Communicator comm,
          TraceLog* trace);
  // The sequences that this rank computes in a step.
  static ReplicaShape ShapeFor(const Options& options, const Communicator& comm);

  // This rank's samples in the next update, and the position of the first one in the order of samples.
  struct Part {
    int64_t epoch = 0;
    int64_t position = 0;
    std::vector<int64_t> samples{};
  };
  [[nodiscard]] Part NextPart() const;

  // What ranks request of all ranks after an update.
  struct Wishes {
    bool snapshot = false;
    bool stop = false;  // after a snapshot
  };
  // Performs one update. All ranks must call Step. `wishes`: those of this rank; wished() then returns those of all ranks.
  //   Errors: those of Work::Wait and Replica; kFailedPrecondition: the loss, or with --clip the norm of the gradients,
  //           is not finite. After an error the state is undefined.
  Status Step(const Wishes& wishes);

  // With --in-place. Call Recover in each round before the first Step, and Rejoin before that in each later round.
  // Continues with the ranks of `comm`, in the place that this rank has there; keeps the state where it is.
  //   REQUIRES: global_batch >= world size
  void Rejoin(Communicator comm);
  // Collective. Brings all ranks to the same step, with the state of ranks that have survived the round before; see
  // ddprun/recover.h. Returns false if no rank has state: then the state is the initial one, and a snapshot may be restored.
  //   committed: called after an update that the last Step had not counted when it failed; step() and loss() include it.
  //   Errors: those of ddprun::Recover. Afterwards only Rejoin, Recover and the destructor may be called.
  StatusOr<bool> Recover(Context& context, const std::function<void()>& committed);

  [[nodiscard]] Device device() const { return replica_->device(); }
  [[nodiscard]] int64_t step() const { return step_; }  // number of updates done
  // Loss on the batch of the last update, in nats per byte; 0 before the first update.
  [[nodiscard]] double loss() const { return loss_; }
  // What any rank has wished in the last Step; the same on all ranks.
  [[nodiscard]] const Wishes& wished() const { return wished_; }

  // On a GPU, copies the state to the host, for State and ParametersSha256; blocks until the last step is done. Nothing on
  // the host. Not collective.
  //   Errors: those of DataParallel::Wait and Replica.
  Status Fetch();

  // Returns the state, as views of this object that are valid until the next Step. The caller must set
  // world_size and round.
  //   REQUIRES: Fetch() after the last Step.
  [[nodiscard]] Snapshot State() const;

  // Continues from `snapshot`.
  //   Errors: kFailedPrecondition: the snapshot was written with other options (the message names the flag)
  //           or with another optimizer (the message names the missing tensor); others: the snapshot is
  //           inconsistent, or those of Replica. After an error the state is undefined.
  Status Restore(const Snapshot& snapshot);

  // SHA-256 of all parameters, in hexadecimal.
  //   REQUIRES: Fetch() after the last Step.
  [[nodiscard]] std::string ParametersSha256() const;
  // Returns the values that must be equal on all ranks before a step: name -> value. Without `parameters`, all but these.
  [[nodiscard]] std::map<std::string, std::string> Facts(bool parameters = true) const;

 private:
  // Returns the options that must be equal to those of a snapshot: flag -> value.
  [[nodiscard]] std::map<std::string, std::string> Identity() const;
  // When it returns, all gradients are ready, and the all-reduce of step_sums_ is in flight.
  Status ComputeGradients();
  // Sets the state to that of step 0.
  void Initialize();
  // Counts the update of the last gradients.
  void StepDone(const Wishes& wished);
  // Copies the parameters and the optimizer's state from the host to the device.
  Status Upload();
  // Starts the all-reduce of step_sums_, with the losses of this step.
  Status SumLosses();
  [[nodiscard]] Optimizer& optimizer() {
    return traced_optimizer_ ? static_cast<Optimizer&>(*traced_optimizer_) : replica_->optimizer();
  }
  // Reduces the gradients and updates the parameters.
  Status Finish(const FinishOptions& update);

  const Options options_;
  const Corpus& corpus_;
  Communicator comm_;
  TraceLog* const trace_;
  BatchSpan span_;          // this rank's positions in the global batch
  int64_t pass_size_;       // sequences of a pass; the last pass may have fewer
  const int64_t max_pass_;  // for which the model has memory

  CounterRng rng_;
  Sampler sampler_;
  const std::unique_ptr<Replica> replica_;
  bool host_is_newer_ = true;  // the initial parameters are not on the device yet
  int64_t step_ = 0;
  double loss_ = 0;
  Wishes wished_;
  // The state is that of all ranks: from the first Step on, because the ranks have compared their states before.
  bool has_state_ = false;
  // What ranks without state get from another one, besides parameters and the optimizer's state.
  struct Carried {
    double loss = 0;
    std::array<int64_t, 3> numbers = {};  // epoch and position of the sampler, counter of the random numbers
  };
  [[nodiscard]] Carried ToCarry() const;
  Carried carried_;

  std::optional<TracedOptimizer> traced_optimizer_;  // if there is a trace
  TreeSum<double> loss_sum_;
  // This rank's values; after the all-reduce, the sums over all ranks.
  enum StepSum { kLoss, kSnapshotWishes, kStopWishes, kNumStepSums };
  std::array<double, kNumStepSums> step_sums_ = {};
  Work sums_reduced_;
  std::optional<DataParallel> data_parallel_;  // from the first Step on, because its creation is collective
};

}  // namespace ddprun::train
