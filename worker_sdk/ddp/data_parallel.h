// The data-parallel step: gradients are reduced over all ranks while backward still computes other gradients.
//
//   DataParallel<float> dp(world, {last_layer_grads, ..., first_layer_grads}, {});
//   for each step:
//     dp.Begin();
//     backward: after tensor i's gradient is complete, dp.GradReady(i);
//     DDPRUN_RETURN_IF_ERROR(dp.Finish());   // now all gradients are the sum (or mean) over all ranks
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"

namespace ddprun {

struct DataParallelOptions {
  ReduceOp op = ReduceOp::kMean;
  // A bucket is closed once it holds this many bytes. Larger buckets mean fewer operations; smaller buckets
  // start earlier.
  size_t bucket_bytes = 4 << 20;
  // The same limit for the first bucket. By default it is smaller, so that communication starts soon after
  // backward has started.
  size_t first_bucket_bytes = 256 << 10;
  // Time limit for reducing all gradients of a step, counted from Finish().
  Duration timeout = seconds(300);
};

// Reduces the gradients of one model. T is float or double.
//   Order:   all ranks construct this object with equal sizes and options, and run the same steps. Gradients
//            may become ready in any order, which may differ between ranks; the order of
//            `grads_in_ready_order` is the fastest.
//   Errors:  Finish() returns the errors of Work::Wait. After an error, this object and its communicator
//            cannot be used again. Destroying this object with an all-reduce in flight aborts the
//            communicator.
//   Threads: one caller at a time.
//   Owns:    its bucket buffers; the gradients' memory belongs to the caller and must outlive it.
template <typename T>
class DataParallel {
 public:
  DataParallel(Communicator comm, std::vector<std::span<T>> grads_in_ready_order,
               DataParallelOptions options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Starts a step. REQUIRES: Finish() was called for the previous step.
  void Begin();

  // Reports that gradient `index` (its index in the constructor's list) is complete for this step. The
  // gradient must not change until Finish(), which overwrites it.
  //   REQUIRES: called between Begin() and Finish(), once for each gradient in each step.
  void GradReady(size_t index);

  // Waits for all buckets and writes the reduced values back into the gradients.
  // REQUIRES: GradReady was called for every gradient.
  Status Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

extern template class DataParallel<float>;
extern template class DataParallel<double>;

}  // namespace ddprun
