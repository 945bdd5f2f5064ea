// The implementation of DataParallel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/status.h"
#include "worker_sdk/ddp/arena.h"
#include "worker_sdk/ddp/buckets.h"
#include "worker_sdk/ddp/layout.h"

namespace ddprun::internal {

// As DataParallel. Each gradient has a slot in the arena of its type, also if it has memory of its own: Ready then copies
// it into its slot, and Finish copies the result back. With compression, a second arena has the slots' 16-bit values at
// the same indices, and that one is reduced. With unused parameters, the element after each gradient is 1 if Ready was
// called and 0 otherwise; after the reduction it is 0 exactly if no rank called Ready.
//
// Parameters are updated in Finish and not as soon as their bucket is reduced, because backward may read parameters until
// then. Tied weights and activation checkpoints read them after their gradient is complete.
class DataParallelStep {
 public:
  // REQUIRES: the parameters and options are valid, and equal on all ranks.
  DataParallelStep(Communicator comm, std::vector<Parameter> parameters, const DataParallelOptions& options);
  // Aborts the communicator if a step is not finished.
  ~DataParallelStep();
  DataParallelStep(const DataParallelStep&) = delete;
  DataParallelStep& operator=(const DataParallelStep&) = delete;

  // Must be called once, before any other function. Errors: kResourceExhausted.
  Status Allocate();

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Tensor gradient(size_t i) const;
  void Begin();
  void ZeroGradients();
  void Ready(size_t i);
  Status Finish(const FinishOptions& options);
  double norm() const { return norm_; }
  const std::vector<size_t>& unused() const { return unused_; }
  const std::vector<DataParallel::BucketTiming>& timings() const { return timings_; }

 private:
  enum class State { kIdle, kInStep, kFailed };

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
  // What compression rounded off gradient i; null without error feedback.
  float* ResidualOf(size_t i) const;

  void LayOutAs(const BucketLists& buckets);
  // Prepares the slot of gradient i and reports it to the scheduler. `ready`: whether the caller called Ready.
  void Submit(size_t i, bool ready);
  void Launch(size_t bucket);
  // Waits for all buckets, also after an error.
  Status Reduce(const FinishOptions& options, TimePoint deadline);
  Status CheckOptions(const FinishOptions& options) const;
  Status SubmitMissing();
  // Converts the reduced values of gradient i back, and reads whether some rank called Ready.
  void Receive(size_t i);
  // Copies gradient i to its own memory, if it has some, and updates its parameter.
  void Deliver(size_t i, const FinishOptions& options, bool update);
  void Clip(const FinishOptions& options);

  // Plans the buckets of the next steps, once. Collective.
  Status PlanAhead();
  std::vector<size_t> ReadyOrder() const;

  Communicator comm_;
  const std::vector<Parameter> parameters_;
  const DataParallelOptions options_;
  std::array<Arena, 8> arenas_;           // by DType
  std::array<Arena, 8> sent_arenas_;      // by DType of the gradients; used if they are compressed
  Arena residuals_;                       // float32, for compressed gradients with error feedback
  std::vector<int64_t> residual_begins_;  // by parameter

  State state_ = State::kIdle;
  int64_t num_steps_ = 0;  // finished
  Layout layout_;
  std::optional<BucketLists> next_buckets_;  // from the next Begin on
  std::optional<BucketScheduler> scheduler_;

  // Of the current or last step.
  std::vector<char> ready_;             // by parameter
  std::vector<char> used_;              // by parameter: some rank called Ready; known after the reduction
  std::vector<size_t> ready_order_;     // parameters for which Ready was called
  std::vector<TimePoint> ready_times_;  // of ready_order_
  std::vector<size_t> launchable_;      // buckets that wait for Finish; without overlap
  std::vector<Work> pending_;           // by bucket, for those launched
  std::vector<DataParallel::BucketTiming> timings_;
  double norm_ = 0;
  std::vector<size_t> unused_;
};

}  // namespace ddprun::internal
