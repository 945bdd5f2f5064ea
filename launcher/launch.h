// One run of the launcher: finds or hosts the coordinator, runs the agent, and shuts both down.
#pragma once

#include <string>

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"

namespace ddprun {

// Runs the job and returns the exit code (launcher/cli/exit_code.h); with --dry-run, only prints what it
// would start. docs/failure_model.md lists what ends a run.
//   REQUIRES: HoldSignals() was called. Call at most once per process.
int Launch(const LaunchConfig& config, AgentLog& log, const std::string& host, WardenHandle warden);

}  // namespace ddprun
