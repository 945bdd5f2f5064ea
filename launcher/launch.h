// Runs a job on this node: finds or hosts the coordinator, runs the agent, then closes the coordinator if
// this process hosts it.
#pragma once

#include <string>

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"

namespace ddprun {

// Runs the job and returns the exit code (launcher/cli/exit_code.h). docs/failure_model.md lists the
// reasons for which a run ends. With --dry-run, only prints the commands that would be started.
//   host:     short name of this node, shown to users.
//   REQUIRES: HoldSignals() was called. Call at most once per process.
int Launch(const LaunchConfig& config, AgentLog& log, const std::string& host, WardenHandle warden);

}  // namespace ddprun
