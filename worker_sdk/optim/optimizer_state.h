// The state of an optimizer in a snapshot.
#pragma once

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// Appends views of the optimizer's state to the snapshot. The optimizer's next Step changes the contents of
// the views.
void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot);

// Overwrites the optimizer's state with the state in the snapshot. A tensor in the snapshot is optimizer
// state if its name is that of a StateTensor whose parameter is another tensor in the snapshot. All other tensors
// belong to the program and are ignored.
//   Errors: kFailedPrecondition:
//           (a) The snapshot contains the state of another optimizer. The message names the first missing or
//               unknown tensor, both optimizers and the remedy. The optimizer is unchanged.
//           (b) A tensor's size or dtype differs. The optimizer's state is then undefined.
Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer);

}  // namespace ddprun
