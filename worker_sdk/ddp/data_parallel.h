// The data-parallel step: gradients are reduced over all ranks while backward still computes the others.
//
//   DataParallel<float> dp(comm.get(), {last_layer_grads, ..., first_layer_grads}, {});
//   for each step:
//     dp.Begin();
//     backward: after tensor i's gradient is complete, dp.GradReady(i);
//     RETURN_IF_ERROR(dp.Finish());   // now all gradients are the sum (or mean) over all ranks
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/time.h"
#include "worker_sdk/comm/communicator.h"

namespace ddprun {

struct DataParallelOptions {
  ReduceOp op = ReduceOp::kMean;
  // A bucket is closed when it holds this much. Larger: fewer operations; smaller: the first starts earlier.
  size_t bucket_bytes = 4 << 20;
  // The first bucket is closed at this, so that communication starts soon after backward does.
  size_t first_bucket_bytes = 256 << 10;
  // For all gradients of a step to be reduced, counted from Finish().
  Duration timeout = seconds(300);
};

// Reduces the gradients of one model. T: float or double.
//   Order:   all ranks build it with equal sizes and options and take the same steps. Gradients may become
//            ready in any order, also in different orders on different ranks; `grads` in the usual order is
//            fastest.
//   Errors:  appear in Finish(): those of Pending::Wait. After one, this and its communicator are dead.
//   Threads: one caller at a time.
//   Owns:    its bucket buffers; `comm` and the gradients' memory belong to the caller and outlive it.
template <typename T>
class DataParallel {
 public:
  DataParallel(Communicator* comm, std::vector<absl::Span<T>> grads_in_ready_order,
               DataParallelOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Starts a step. REQUIRES: the step before was finished.
  void Begin();

  // Gradient `index` (its place in the constructor's list) is complete for this step; it is read now and
  // written by Finish(). REQUIRES: between Begin() and Finish(), once per step and gradient.
  void GradReady(size_t index);

  // Waits for all buckets and writes the reduced values back into the gradients.
  // REQUIRES: GradReady was called for every gradient.
  absl::Status Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

extern template class DataParallel<float>;
extern template class DataParallel<double>;

}  // namespace ddprun
