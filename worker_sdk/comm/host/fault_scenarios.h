// The scenario of fault_test.
#pragma once

#include "base/time.h"
#include "ddprun/communicator.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// The time limits of an operation and of Split if the victim stops: longer than an operation takes without a fault.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr Duration kFaultDeadline = seconds(10);
#else
inline constexpr Duration kFaultDeadline = seconds(2);
#endif
inline constexpr Duration kFaultSetupTimeout = seconds(10);

// See the definition.
int FailWithinAnOperation(const RankProcess& self, Communicator& comm);

}  // namespace ddprun
