// One run of the launcher: finds or hosts the coordinator, runs the agent, ends both.
#pragma once

#include <string>

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"

namespace ddprun {

// With --dry-run it only says what it would do. Returns the exit code (launcher/cli/exit_code.h).
// docs/failure_model.md tells what ends a run.
//   REQUIRES: HoldSignals(). To be called once in a process.
int Launch(const LaunchConfig& config, AgentLog& log, const std::string& host, WardenHandle warden);

}  // namespace ddprun
