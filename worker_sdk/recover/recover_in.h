// Recover without a Context.
#pragma once

#include <cstdint>

#include "ddprun/communicator.h"
#include "ddprun/recover.h"
#include "ddprun/status.h"
#include "worker_sdk/recover/state_history.h"

namespace ddprun {

// As Recover, for the rank of a process with `history`.
//   node: equal numbers mean the same node.
StatusOr<Recovered> RecoverIn(StateHistory& history, int64_t round, int64_t node, Communicator world,
                              const RecoverOptions& options);

}  // namespace ddprun
