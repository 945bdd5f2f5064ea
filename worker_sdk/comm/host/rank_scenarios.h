// The scenarios of host_communicator_test. Each rank runs its scenario in a separate process.
#pragma once

#include <string_view>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// Exit codes; 0: success.
inline constexpr int kWrongResult = 3;
inline constexpr int kEnded = 42;  // the scenario's status is in the store under outcome/<rank>

// Store key of scenario "late". The test sets it once the first node's processes have exited.
inline constexpr char kFirstNodeGone[] = "first-node-gone";

// A deadline that a test never reaches.
inline TimePoint Soon() { return std::chrono::steady_clock::now() + seconds(60); }

// Prints `what` and returns kWrongResult.
int Fail(const RankProcess& self, std::string_view what);
// Sets this rank's outcome and returns kEnded.
int Report(const RankProcess& self, const Status& status);
// Returns when all ranks have called MeetInStore, so that setup is complete on all of them.
void MeetInStore(const RankProcess& self);

// Runs the scenario named by self.args[0] and returns the exit code for the process.
int RunRank(const RankProcess& self);

}  // namespace ddprun
