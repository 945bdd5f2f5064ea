// The scenarios of host_communicator_test. Each rank runs its scenario in a separate process.
#pragma once

#include "base/time.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// Exit codes; 0: success.
inline constexpr int kWrongResult = 3;
inline constexpr int kEnded = 42;  // the scenario's status is in the store under outcome/<rank>

// Store key of scenario "late". The test sets it once the first node's processes have exited.
inline constexpr char kFirstNodeGone[] = "first-node-gone";

// A deadline that a test never reaches.
inline TimePoint Soon() { return std::chrono::steady_clock::now() + seconds(60); }

// Runs the scenario named by self.args[0] and returns the exit code for the process.
int RunRank(const RankProcess& self);

}  // namespace ddprun
