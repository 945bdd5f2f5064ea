// The state of an optimizer in a snapshot.
#pragma once

#include "absl/status/status.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// Appends views of the state, which change with the optimizer's next Step.
void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot);

// Overwrites the optimizer's state with that of the snapshot. A tensor of the snapshot is optimizer state if
// its name is the StateTensorName of another tensor of the snapshot; all others belong to the program and are
// ignored.
//   Errors: kFailedPrecondition: (a) the snapshot has the state of another optimizer: the message names the
//           first missing or unknown tensor, both optimizers and the remedy, and the state is unchanged; (b)
//           a tensor's size or dtype differs: the state is undefined.
absl::Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer);

}  // namespace ddprun
