// Starts the agents of all hosts of --hosts over ssh, and stays until they have ended.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Runs until the ssh processes of all hosts have exited, and returns the exit code: that of the first host whose agent did
// not exit with 0; 1 if a host could not be started. With --dry-run, prints what would be started.
//
//   * A host that cannot be started ends the job. So do lost hosts if fewer than --nnodes' minimum are left for 10 s.
//   * Signals of --signals-to-handle and --preempt-signal are passed on to all agents. The starter waits for
//     --shutdown-timeout and 30 s more after the first of --signals-to-handle, then ends the connections.
//
//   arguments: of ddprun, without argv[0]; the agents get the same ones.
//   Order:     after HoldSignals(). This process must have no other children.
int RunStarter(const HostsConfig& config, const std::vector<std::string>& arguments, AgentLog& log);

}  // namespace ddprun
