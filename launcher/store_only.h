// --store-only: a coordinator with its store and nothing else.
#pragma once

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Runs until a signal comes or its parent ends. The first line on stdout is its port. Returns the exit code.
int RunStoreOnly(const StoreConfig& config, AgentLog& log);

}  // namespace ddprun
