// Copies tensors from one rank to others.
#pragma once

#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

// Copies the tensors from rank `root` to all ranks, in few operations: small tensors share one. Collective.
//   Shapes:   equal on all ranks, as are the types of their devices.
//   keep:     false: this rank takes part, but its tensors do not change. It needs memory for one message.
//   REQUIRES: FaultOfPlace(device of each tensor, comm.device()) is empty. Rank `root` keeps its tensors.
//   Errors:   those of Work::Wait, of ArrayOps::Open and of its operations; the communicator is then aborted.
Status BroadcastTensors(Communicator comm, const std::vector<Tensor>& tensors, int root, bool keep = true);

}  // namespace ddprun
