// What the next round does with a DataParallel whose round has ended: see DataParallelOptions::atomic_steps.
#pragma once

#include <cstdint>

#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"

namespace ddprun::internal {

class DataParallelStep;

// A view of a DataParallel, whose communicator has ended and is retired.
//   Threads: one caller, that of the DataParallel.
class LastStep {
 public:
  // REQUIRES: `dp` was not moved from.
  explicit LastStep(DataParallel& dp);

  [[nodiscard]] bool is_atomic() const;
  // The last step that was committed; -1: none.
  [[nodiscard]] int64_t committed() const;
  // The step that is prepared and not committed; -1: none. Its gradients are reduced, and the parameters are those before it.
  [[nodiscard]] int64_t prepared() const;
  // That of the prepared step; null if there is none.
  [[nodiscard]] const Optimizer* optimizer() const;

  // Commits the prepared step: updates the parameters, which gives the bits that its Finish would have given.
  // Blocks until the GPU has done so.
  //   Errors:   on a GPU only; parameters and optimizer are then undefined.
  //   REQUIRES: prepared() >= 0; the optimizer exists.
  Status Apply();
  // Forgets the prepared step, if there is one.
  void Drop();
  // Blocks until work of the DataParallel on a GPU is done. On the host: returns OK.
  Status AwaitWork();
  // Frees the memory of all gradients, which no work uses, and forgets which steps were committed. From then on, the
  // DataParallel can only be destroyed.
  //   REQUIRES: prepared() < 0.
  void Release();

 private:
  DataParallelStep& step_;
};

}  // namespace ddprun::internal
