// What the world of a simulation knows of one host.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/world/sim_agent.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

// A host of a simulation, with the agents that were started on it.
struct HostState {
  explicit HostState(std::unique_ptr<SimHost> h) : host(std::move(h)) {}
  std::unique_ptr<SimHost> host;
  HostHabits habits;
  std::vector<std::unique_ptr<SimAgent>> agents;  // one per start; only the last agent may be alive
  int next_port = 1000;
  // Faults in effect. Faults of one kind may overlap.
  int suspends = 0;
  int outages = 0;
  int stops = 0;
  int deaf = 0;
  int no_exec = 0;
  int hang = 0;

  SimAgent* live() const { return agents.empty() || agents.back()->ended() ? nullptr : agents.back().get(); }
};

}  // namespace ddprun::sim
