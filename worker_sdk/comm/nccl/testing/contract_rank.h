// A process that checks the contract of operations on its GPU of the stand-in.
#pragma once

#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// Returns the exit code: 0 if all cases of GpuContract hold. Failures are printed.
int RunGpuContractRank(RankProcess& self);

}  // namespace ddprun
