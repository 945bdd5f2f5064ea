// The command with which another node joins a job whose first node chose the endpoint.
#pragma once

#include <string>

#include "launcher/config/launch_config.h"
#include "net/endpoint.h"

namespace ddprun {

// Returns a shell command that runs ddprun with the options that all nodes of the job should share, and with
// the program and its arguments as typed on this node.
std::string JoinCommand(const LaunchConfig& config, const Endpoint& coordinator);

}  // namespace ddprun
