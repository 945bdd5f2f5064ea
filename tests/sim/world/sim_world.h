// A complete simulated job: coordinator, agents, workers, network and storage, with the faults of a script.
#pragma once

#include <cstdint>

#include "rendezvous/coordinator/recording.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_result.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Runs a script to its end. `print`: prints the trace on stdout. `record` receives the steps of the first
// coordinator; empty: no recording. After the last fault, at the time `calm`, all faults are undone: stopped
// processes continue, links are fast and lossless, the disk has room, and agents start on hosts without one,
// with a new coordinator if it has exited. The job must then end in bounded time, all agents must exit, and
// no worker may be left.
SimResult RunScript(const Script& script, bool print, StepSink record = {});

// The same run; `sink` receives all lines of its trace, including details.
SimResult TellScript(const Script& script, Trace::Sink sink);

// RunScript(DrawScript(seed), print).
SimResult RunSeed(uint64_t seed, bool print);

}  // namespace ddprun::sim
