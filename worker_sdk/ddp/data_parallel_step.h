// The implementation of DataParallel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/status.h"
#include "worker_sdk/ddp/arena.h"
#include "worker_sdk/ddp/buckets.h"
#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/device/array_ops.h"

namespace ddprun::internal {

// As DataParallel. Each gradient has a slot in the arena of its type, also if it has memory of its own: Ready then copies
// it into its slot, and Finish copies the result back. With compression, a second arena has the slots' 16-bit values at
// the same indices, and that one is reduced. With unused parameters, the element after each gradient is 1 if Ready was
// called and 0 otherwise; after the reduction it is 0 exactly if no rank called Ready.
//
// Parameters are updated in Finish and not as soon as their bucket is reduced, because backward may read parameters until
// then. Tied weights and activation checkpoints read them after their gradient is complete.
//
// On a GPU, three kinds of streams follow each other in each step: those of Ready, the stream of `ops_`, in which gradients
// are put into their slots and after which buckets are reduced, and FinishOptions::stream. The next step's work in the stream
// of `ops_` follows that of Finish.
class DataParallelStep {
 public:
  // REQUIRES: the parameters and options are valid, and equal on all ranks.
  DataParallelStep(Communicator comm, std::vector<Parameter> parameters, const DataParallelOptions& options);
  // Aborts the communicator if a step is not finished.
  ~DataParallelStep();
  DataParallelStep(const DataParallelStep&) = delete;
  DataParallelStep& operator=(const DataParallelStep&) = delete;

  // Must be called once, before any other function. Collective.
  //   Errors: those of ArrayOps::Open and of Communicator::Allocate.
  Status Allocate();

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Tensor gradient(size_t i) const;
  void Begin();
  void ZeroGradients(const Stream& stream);
  void Ready(size_t i, const Stream& stream);
  Status Finish(const FinishOptions& options);
  Status Wait();
  double norm() const { return norm_; }
  const std::vector<size_t>& unused() const { return unused_; }
  const std::vector<DataParallel::BucketTiming>& timings() const { return timings_; }

  // See LastStep. The gradients of a prepared step are in their slots.
  struct Prepared {
    Optimizer* optimizer = nullptr;
    OptimizerStep options = {};  // with the stream of Finish
    bool updates = true;         // false: the norm is not finite
  };
  bool is_atomic() const { return options_.atomic_steps; }
  int64_t committed() const { return committed_; }
  const std::optional<Prepared>& prepared() const { return prepared_; }
  // Puts the updates into the stream. On the host: returns OK.
  //   REQUIRES: prepared().
  Status CommitPrepared();
  // Blocks until all work of this object on a GPU is done.
  Status AwaitWork();
  void DropPrepared() { prepared_.reset(); }
  // REQUIRES: !prepared().
  void Release();

 private:
  enum class State { kIdle, kInStep, kFailed };

  bool on_host() const { return ops_->on_host(); }
  // If true, the options have the sizes of buckets, and nothing is measured.
  bool sizes_are_fixed() const { return options_.bucket_bytes > 0; }
  int64_t extra() const { return options_.unused_parameters ? 1 : 0; }
  // The type in which gradients of `dtype` are reduced.
  DType SentAs(DType dtype) const;
  // For kFloat16 with kMean: the ranks divide before they convert, and the operation is a sum.
  bool DividesFirst(DType dtype) const;
  int64_t SentBytes(size_t i) const;
  // The first `count` elements of the slot of gradient i; what of it is sent; the bucket that is reduced.
  Tensor InSlot(size_t i, int64_t count) const;
  Tensor SentSlot(size_t i, int64_t count) const;
  Tensor SentBucket(size_t b) const;
  // The element after gradient i, in what is sent; with unused parameters.
  Tensor FlagOf(size_t i) const;
  // What compression rounded off gradient i; null without error feedback.
  float* ResidualOf(size_t i) const;

  void LayOutAs(const BucketLists& buckets);
  // Sets all slots to zero, and waits for that on a GPU.
  Status ClearSlots();
  // OK if `stream` is valid. `what`: for errors.
  Status CheckStream(const Stream& stream, std::string_view what);
  // The work in the stream of `ops_` follows that in `stream`.
  Status Follow(const Stream& stream, std::string_view what);
  // Prepares the slot of gradient i, and then reports it to the scheduler. `ready`: whether the caller called Ready.
  void Submit(size_t i, bool ready);
  Status FillSlot(size_t i, bool ready);
  void Launch(size_t bucket);
  // What follows puts its work into FinishOptions::stream.
  Status Reduce(const FinishOptions& options, TimePoint deadline);
  // Waits for a bucket, or makes the stream wait for it.
  Status Join(size_t bucket, const Stream& stream, TimePoint deadline);
  Status CheckOptions(const FinishOptions& options);
  Status SubmitMissing();
  // Reads for each parameter of the bucket whether some rank called Ready.
  Status ReadUsed(size_t bucket, const Stream& stream, TimePoint deadline);
  // Converts the reduced values of gradient i back.
  Status Receive(size_t i, const Stream& stream);
  // Copies gradient i to its own memory, if it has some, and updates its parameter.
  Status Deliver(size_t i, const FinishOptions& options, bool update);
  Status Clip(const FinishOptions& options, TimePoint deadline);
  // Waits until no operation uses the memory of this object.
  void EndPending();
  // The end of an atomic step: records that the step is prepared, and commits it once all ranks have done so. If this fails,
  // the step stays prepared.
  Status Commit(const FinishOptions& options, TimePoint deadline);

  // Plans the buckets of the next steps, once. Collective.
  Status PlanAhead();
  std::vector<size_t> ReadyOrder() const;

  Communicator comm_;
  const std::vector<Parameter> parameters_;
  const DataParallelOptions options_;
  std::shared_ptr<void>
      one_;  // on the host: 1 as each DType, in 8 bytes each; with unused parameters, as the next
  std::shared_ptr<void> flags_;  // on the host, 8 bytes by parameter: the reduced element after the gradient
  std::array<Arena, 8> arenas_;  // by DType
  std::array<Arena, 8> sent_arenas_;      // by DType of the gradients; used if they are compressed
  Arena residuals_;                       // float32, for compressed gradients with error feedback
  std::vector<int64_t> residual_begins_;  // by parameter
  std::unique_ptr<ArrayOps> ops_;         // destroyed before the memory that its work uses

  State state_ = State::kIdle;
  int64_t num_steps_ = 0;  // finished
  Layout layout_;
  std::optional<BucketLists> next_buckets_;  // from the next Begin on
  std::optional<BucketScheduler> scheduler_;

  // Of the current or last step.
  Status fault_;                        // of Begin, ZeroGradients or Ready, which return none
  Stream checked_;                      // the last stream that was valid
  std::vector<char> ready_;             // by parameter
  std::vector<char> used_;              // by parameter: some rank called Ready; known after the reduction
  std::vector<size_t> ready_order_;     // parameters for which Ready was called
  std::vector<TimePoint> ready_times_;  // of ready_order_
  std::vector<size_t> launchable_;      // buckets that wait for Finish; without overlap
  std::vector<Work> pending_;           // by bucket, for those launched
  std::vector<DataParallel::BucketTiming> timings_;
  double norm_ = 0;
  bool norm_is_finite_ = true;  // or was not computed
  std::vector<size_t> unused_;

  // With atomic_steps.
  int64_t committed_ = -1;
  std::optional<Prepared> prepared_;
};

}  // namespace ddprun::internal
