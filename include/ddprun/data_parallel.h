// The data-parallel step: gradients are reduced over all ranks while backward still computes other gradients.
//
//   DDPRUN_RETURN_IF_ERROR(BroadcastParameters(world, parameters, 0));
//   DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> adamw, MakeAdamW(parameters, {.learning_rate = 3e-4}));
//   DDPRUN_ASSIGN_OR_RETURN(DataParallel dp, DataParallel::Create(world, parameters));
//   for (int64_t step = 1; step <= 1000; ++step) {
//     dp.Begin();
//     ...  // forward; backward: writes dp.gradient(i), and calls dp.Ready(i) as soon as it is final
//     DDPRUN_RETURN_IF_ERROR(dp.Finish({.optimizer = adamw.get(), .step = {.step = step}}));
//   }
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/export.h"
#include "ddprun/optim.h"
#include "ddprun/parameters.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"

namespace ddprun {

// The type in which ranks exchange gradients. Gradients of 16 bits keep their own type. On a GPU, those of float64 cannot be
// compressed.
enum class Compression : uint8_t {
  kNone = 0,  // the gradients' own type
  // Half the bytes of float32. For a mean, each rank divides its gradients by the number of ranks before it converts
  // them, so that no sum exceeds the largest gradient by more than rounding. Results below 6e-5 lose precision. A value
  // beyond 65504, or a sum beyond it, becomes infinite: the loss of the next step, or FinishOptions::clip_norm, shows
  // that.
  kFloat16 = 1,
  // Half the bytes of float32, the range of float32, 8 bits of precision.
  kBFloat16 = 2,
};

// All options but `overlap` and `timeout` must be equal on all ranks.
struct DataParallelOptions {
  ReduceOp op = ReduceOp::kMean;  // kMean or kSum
  // A bucket is closed once it holds this many bytes of what ranks exchange; the first bucket, once it holds
  // first_bucket_bytes (0: bucket_bytes, but at most 256 KiB, so that communication starts soon). Gradients are in the
  // order in which they became ready on rank 0 in the first step.
  // If bucket_bytes is 0, the buckets are planned at the end of the second step, so that the last one is reduced as early
  // as possible: from the order and the times in which gradients became ready on rank 0, and from the latency and the
  // bandwidth of all-reduces, which are measured then. That costs about a third of the communication of a step, once.
  // Buckets are divided where latency costs little, because gradients are seldom ready exactly as planned. Until then,
  // the buckets hold 4 MiB.
  // Parameters on a GPU: the times on the host mean nothing there, so nothing is measured. If bucket_bytes is 0, it is 25 MiB,
  // and first_bucket_bytes is 1 MiB.
  // Buckets change the speed, but no bit of a result.
  int64_t bucket_bytes = 0;
  int64_t first_bucket_bytes = 0;
  bool overlap = true;  // if false, no bucket starts before Finish: to measure what overlap gains
  Compression compression = Compression::kNone;
  // Adds what compression rounded off in a step to the gradients of the next step. What a step leaves is not part of
  // snapshots. Costs 4 bytes for each element.
  bool error_feedback = false;
  // If true, a step may leave gradients out: on a rank that does not call Ready for a parameter, its gradient counts as
  // zero. If false, that is an error. Costs one element of each gradient, and no operation. Parameters on a GPU: Finish
  // blocks until the buckets are reduced.
  bool unused_parameters = false;
  // A step is committed by all ranks or by none: no parameter changes before every rank has every gradient. After an error,
  // Recover (recover.h) finds out which of the two it is. Costs a barrier in each step, and the overlap of updates with reductions. Every
  // Finish needs an optimizer, which must exist until Recover has returned, or as long as this object.
  bool atomic_steps = false;
  // Time limit for reducing all gradients of a step, counted from Finish(); for planning the buckets after that; for
  // each operation of Create(); and for Wait(). On a GPU, Finish does not wait, so that each bucket has the time limit of the
  // communicator instead.
  Duration timeout = std::chrono::seconds(300);
};

// Must be equal on all ranks.
struct FinishOptions {
  // Updates the parameters. Without clipping, it updates those of a bucket as soon as the bucket is reduced, while later
  // buckets are being reduced. Null: the caller updates them.
  //   REQUIRES: it was made for the same parameters, in the same order.
  Optimizer* optimizer = nullptr;
  OptimizerStep step = {};
  // If > 0, and the global norm of the reduced gradients exceeds it, they are multiplied by clip_norm / norm. All
  // gradients are then reduced before any parameter is updated. If the norm is not finite, no gradient is multiplied and
  // no parameter is updated; see norm(). Infinity computes the norm and never clips. Parameters on a GPU: they are float32, and
  // Finish blocks until the norm is known.
  double clip_norm = 0;
  // Parameters on a GPU: a stream of that GPU, but not the default stream. What Finish does with reduced gradients runs in it,
  // after the work that is in it now; for updates, that includes backward, which may still read the parameters. Work that is put
  // into it later sees the results. Must be empty for parameters on the host. `step.stream` is ignored. The ranks' streams need
  // not be equal.
  Stream stream = {};
};

namespace internal {
class DataParallelStep;
class LastStep;
}  // namespace internal

// Reduces the gradients of one model, which is on the host or on the GPU of the communicator. Movable.
//   Order:   all ranks create this object with equal parameters and options, and run the same steps. Gradients may become
//            ready in any order, which may differ between ranks and steps. From the first Ready() of a step until
//            Finish() returns, the program must not start other operations of the communicator. Parameters on a GPU: it may
//            start operations with memory of the host.
//   Result:  the gradients' bits do not depend on the buckets or on timing: see Communicator. With compression, each
//            gradient is converted before the reduction and converted back after it.
//   GPUs:    all parameters are on Communicator::device(). Begin, Ready and Finish put work into streams; they do not wait for the
//            GPU, with these exceptions: Create; Begin when the buckets are planned, once; Finish with clip_norm or
//            unused_parameters, and in the first step, when the ranks agree on the buckets. An operation that fails after
//            Finish has returned OK makes the Finish of a later step fail, or Wait. Call Wait before the host uses results,
//            such as for a snapshot: a copy of undefined parameters looks like any other.
//   Errors:  after an error of Finish or Wait, neither this object nor its communicator can be used again, and gradients and
//            parameters are undefined; with atomic_steps, the parameters and the optimizer are as before the step. Destroying
//            this object between Begin and Finish aborts the communicator.
//            Calls in another order than documented, and indices out of range, abort the process.
//   Threads: one caller at a time, for this object and its communicator together.
//   Owns:    the memory of gradients that have none of their own, and buckets for all gradients.
//   Destructor: on a GPU, waits for the work of the last step, at most 10 s.
class DDPRUN_EXPORT DataParallel {
 public:
  // Collective: compares the parameters and the options of all ranks. Does not change any value: see BroadcastParameters.
  //   Errors: kInvalidArgument: they differ (as CompareParameters), or a parameter or an option is invalid; the
  //           communicator remains usable. Also if the parameters are not all on the same device, or on a GPU with an
  //           option that it does not have. kResourceExhausted: no memory for the buckets; the communicator is aborted.
  //           kFailedPrecondition: the GPU cannot be used; likewise.
  //           Others: those of Work::Wait.
  static StatusOr<DataParallel> Create(Communicator comm, std::vector<Parameter> parameters,
                                       const DataParallelOptions& options = {});
  explicit DataParallel(std::unique_ptr<internal::DataParallelStep> step);  // for the library
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) noexcept;

  [[nodiscard]] const std::vector<Parameter>& parameters() const;

  // Where backward writes gradient i: `parameters()[i].gradient` if that has memory, otherwise a part of a bucket, which
  // saves copies. A part of a bucket stays where it is from Begin() to the next Begin(), and is aligned to 64 bytes.
  // Begin() moves it when the buckets are planned, which happens once, after the first or the second step.
  [[nodiscard]] Tensor gradient(size_t i) const;

  // Starts a step. Gradients have undefined values until backward writes them.
  //   REQUIRES: Finish() was called for the previous step, and returned OK.
  void Begin();
  // Sets all gradients to zero, for a backward pass that adds to them. To accumulate several passes in one step, call
  // this once after Begin(), and Ready() only in the last pass: until then, nothing is sent. Call it also for gradients that
  // only earlier passes have written; otherwise they count as left out.
  //   stream:   as for Ready: gradients on a GPU are zero for work that is put into it later.
  //   REQUIRES: called between Begin() and the first Ready().
  void ZeroGradients(const Stream& stream = {});

  // Reports that gradient i is complete. The program must not access it from here until Finish() returns. It may read
  // the parameters until it calls Finish.
  //   stream:   parameters on a GPU: the gradient is complete when the work that is in this stream now is done. The
  //             gradients of a step may have different streams; a bucket waits for all gradients that were reported before it
  //             is full. An invalid stream is an error of Finish. Must be empty for parameters on the host.
  //   REQUIRES: called between Begin() and Finish(), at most once for each gradient in each step.
  void Ready(size_t i, const Stream& stream = {});

  // Waits for all buckets. Then all gradients are the mean or the sum over all ranks, clipped if requested, and the
  // parameters are updated if there is an optimizer. On a GPU: puts that into FinishOptions::stream, and does not wait.
  //   REQUIRES: Begin() was called.
  //   Errors: kFailedPrecondition: Ready was not called for some gradient, which the message names, and
  //           `unused_parameters` is false. kInvalidArgument: the optimizer is for other parameters, clip_norm is
  //           negative or not a number, or a stream is invalid. Both abort the communicator. Others: those of Work::Wait.
  Status Finish(const FinishOptions& options = {});

  // Blocks until the last step has finished on the GPU, at most for `timeout`. On the host: returns OK at once.
  //   Errors: those of the step's operations and of the GPU.
  Status Wait();

  // The global norm of the gradients of the last step before clipping; 0 if clip_norm was 0. It does not depend on
  // the buckets, and is equal on all ranks.
  [[nodiscard]] double norm() const;
  // The parameters for which no rank called Ready in the last step; the optimizer did not update them. In ascending
  // order; empty without `unused_parameters`.
  [[nodiscard]] const std::vector<size_t>& unused() const;

  // A bucket of the last step, for traces.
  struct BucketTiming {
    std::vector<size_t> parameters;  // in ready order
    int64_t num_bytes = 0;           // of one rank's input of the all-reduce
    TimePoint started;
    // When the all-reduce finished on this rank; for buckets of less than 4 KiB, when Finish noticed that. On a GPU, where
    // Finish does not wait for it, when Finish put the work after it into the stream.
    TimePoint reduced;
  };
  [[nodiscard]] const std::vector<BucketTiming>& timings() const;

 private:
  friend class internal::LastStep;
  std::unique_ptr<internal::DataParallelStep> impl_;  // null only after a move
};

}  // namespace ddprun
