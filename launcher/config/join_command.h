// How another node joins a job that chose its own endpoint.
#pragma once

#include <string>

#include "launcher/config/endpoint.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// One line for a shell: ddprun with what must be equal on all nodes, and the program with its arguments as
// they were typed here.
std::string JoinCommand(const LaunchConfig& config, const Endpoint& coordinator);

}  // namespace ddprun
