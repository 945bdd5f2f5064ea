// The command to run on another node so that it joins a job whose first node chose the endpoint.
#pragma once

#include <string>

#include "launcher/config/endpoint.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Returns a shell command: ddprun with the options that must agree on all nodes, and the program with its
// arguments as typed on this node.
std::string JoinCommand(const LaunchConfig& config, const Endpoint& coordinator);

}  // namespace ddprun
