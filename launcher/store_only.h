// --store-only: runs a coordinator with its store, without an agent.
#pragma once

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Runs until this process receives SIGTERM, SIGINT, SIGQUIT or SIGHUP, or until its parent exits. Prints the
// port as the first line on stdout. Returns the exit code.
//   REQUIRES: HoldSignals() was called.
int RunStoreOnly(const StoreConfig& config, AgentLog& log);

}  // namespace ddprun
