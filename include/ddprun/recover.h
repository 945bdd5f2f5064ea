// Goes on with the memory of the ranks that have survived the end of a round. See Context::Survive,
// DataParallelOptions::atomic_steps, and the chapter "In-place recovery" of docs/sdk.md, which has a training loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/export.h"
#include "ddprun/optim.h"
#include "ddprun/parameters.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

struct RecoverOptions {
  // In: the optimizer updates that this rank's parameters, optimizer and `more` contain, as FinishOptions::step numbers them;
  // -1: nothing that counts. Out: those of all ranks; -1: no rank has state, so load a snapshot or initialize, all of it.
  // After an error: as before, or more because a step was committed, or -1 because the state was being replaced.
  int64_t* step = nullptr;
  // Of the last round, over the world, with atomic_steps; null if this rank has none. After success it can only be destroyed,
  // or passed to Recover again, which then ignores it.
  DataParallel* last = nullptr;
  std::vector<Parameter> parameters = {};
  Optimizer* optimizer = nullptr;  // null: none; otherwise that of every Finish, for `parameters`
  // Further state. It is equal on all ranks after each step, as are the parameters and the optimizer's state.
  //   Shapes: equal on all ranks, as are the types of devices.
  std::vector<Tensor> more = {};
  // What the program does after a successful Finish(): updates `more`. Called after *step was increased, if `last` has
  // committed a step that *step did not count: before the error, or only now.
  std::function<void(int64_t step)> committed = nullptr;
};

struct Recovered {
  int root = -1;        // the rank from which joiners have got the state; -1: none
  int num_joiners = 0;  // ranks that had no state
};

// Collective over the world of the round. Brings all ranks to the same step: the furthest that any rank of the round before
// has committed, if a rank of that round has survived. Ranks without that state get it from one that has it. Call it in
// every round before the first step. Safe to repeat in a later round after any error.
//   Errors: kInvalidArgument: an argument is invalid on some rank, or the parameters, the optimizers or `more` of the ranks
//           differ; the message names the first difference. kDataLoss: the steps of the survivors cannot be reconciled: a
//           program has counted steps wrongly. Both on all ranks, which are unchanged. Others: those of Work::Wait, and those
//           of a GPU.
DDPRUN_EXPORT StatusOr<Recovered> Recover(Context& context, Communicator world,
                                          const RecoverOptions& options);

}  // namespace ddprun
