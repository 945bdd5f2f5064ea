// The state of an optimizer in a snapshot.
#pragma once

#include <string_view>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// Appends views of the optimizer's state to the snapshot. The optimizer's next Step changes the contents of
// the views.
//   REQUIRES: the state is on the host.
void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot);

// Overwrites the optimizer's state with the state in the snapshot. A tensor in the snapshot is optimizer
// state if its name is that of a StateTensor whose parameter is another tensor in the snapshot. All other tensors
// belong to the program and are ignored.
//   Errors: kFailedPrecondition:
//           (a) The snapshot contains the state of another optimizer. The message names the first missing or
//               unknown tensor, both optimizers and the remedy. The optimizer is unchanged.
//           (b) A tensor's size or dtype differs. The optimizer's state is then undefined.
//   REQUIRES: the state is on the host.
Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer);

// The same for copies of the state on the host: `state` has the names and shapes of Optimizer::state(), and `optimizer` is
// Optimizer::name().
void AddState(std::vector<StateTensor> state, Snapshot* snapshot);
Status LoadState(const Snapshot& snapshot, std::string_view optimizer, const std::vector<StateTensor>& state);

}  // namespace ddprun
