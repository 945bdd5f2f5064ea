// The scenarios of point_to_point_test.
#pragma once

#include "ddprun/communicator.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// Store key that a test sets when the ranks are to continue.
inline constexpr char kGoOn[] = "go-on";

// Runs the scenario named by self.args[0], which begins with "message-", and returns the exit code for the process.
int RunMessageScenario(const RankProcess& self, Communicator comm);

}  // namespace ddprun
