// A job in a bottle: coordinator, agents, workers, network and storage, with the faults of a script, then
// calm.
#pragma once

#include <cstdint>

#include "rendezvous/coordinator/recording.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_result.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Runs a script to its end. `print`: tell the story on stdout.
//   After the last fault comes calm: what was stopped goes on, links heal and are quick, the disk has room,
//   and agents are started wherever none runs, with a new coordinator if that is gone. The job must then end
//   in bounded time, every agent with it, and no worker be left.
//   record: what the first coordinator is told; empty: nothing is recorded.
SimResult RunScript(const Script& script, bool print, StepSink record = {});

// The same run; `sink` gets its lines with all details.
SimResult TellScript(const Script& script, Trace::Sink sink);

// RunScript of DrawScript.
SimResult RunSeed(uint64_t seed, bool print);

}  // namespace ddprun::sim
