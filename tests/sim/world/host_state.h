// What the world of a simulation knows of one host.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/world/sim_agent.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_network.h"
#include "tests/sim/world/sim_result.h"
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

  void Suspend() {
    host->Suspend();
    if (live() != nullptr && live()->warden().workers() != nullptr) live()->warden().workers()->Suspend();
  }
  // writer_first: the writer that the warden is about to kill runs before the warden.
  void Resume(bool writer_first) {
    const auto writer = [this] {
      if (agents.empty()) return;
      if (SimWorkers* const workers = agents.back()->warden().workers()) workers->Resume();
    };
    if (writer_first) writer();
    host->Resume();
    if (!writer_first) writer();
  }

  SimAgent* live() const { return agents.empty() || agents.back()->ended() ? nullptr : agents.back().get(); }
};

// A fault of IsOfWorkers. Returns whether it has taken effect at once; some take effect later, and are counted then.
bool DoToWorkers(const Fault& fault, HostState& host, TimePoint now);

// Adds what the processes of a simulation have counted together.
inline void AddCounts(const SimJob& job, const SimNetwork& network, SimResult& result) {
  result.steps = job.steps_done;
  result.survival = job.survival;
  result.stops = job.stops;
  for (const SimDisk::Snapshot& snapshot : job.disk->snapshots()) result.snapshots += snapshot.whole;
  result.torn_snapshots = job.disk->num_torn();
  result.taken_over = job.disk->num_taken_over();
  result.fences = job.fences_fallen;
  result.packets = network.num_sent();
  result.packets_lost = network.num_lost();
}

}  // namespace ddprun::sim
