// The disturbances of the network that a fault consists of.
#pragma once

#include <vector>

#include "tests/sim/script.h"
#include "tests/sim/world/sim_network.h"

namespace ddprun::sim {

// Returns one disturbance for each direction; none if the fault names all hosts, so that there is no link between them and
// others.
//   hosts: the ids of the hosts by their index in the script.
//   REQUIRES: IsOfNetwork(fault.kind).
std::vector<Disturbance> DisturbancesOf(const Fault& fault, const std::vector<HostId>& hosts);

}  // namespace ddprun::sim
