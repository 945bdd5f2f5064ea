// The state of an optimizer in a snapshot.
#pragma once

#include "absl/status/status.h"
#include "worker_sdk/optim/optimizer.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// Appends the state as views that hold until the optimizer's next Step.
void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot);

// Overwrites the state with that of the snapshot. State is what has the StateTensorName of another tensor of the
// snapshot; every other tensor is the program's and is ignored.
//   Errors: kFailedPrecondition: the snapshot's optimizer state is not this optimizer's, naming the first tensor that
//           is missing or not known, both optimizers, and the remedy; or a tensor has another size. The state
//           is unchanged after the former, undefined after the latter.
absl::Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer);

}  // namespace ddprun
