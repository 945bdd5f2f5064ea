// A complete simulated job: coordinator, agents, workers, network and storage, with the faults of a script.
#pragma once

#include <cstdint>
#include <functional>

#include "rendezvous/coordinator/recording.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_result.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Runs a script to its end.
//   `print`:  whether the trace is printed on stdout.
//   `record`: called for each coordinator that is started; returns what receives its steps. May be empty.
// At Settings::calm, after the last fault, all faults are undone: stopped processes continue, links are fast
// and lossless, and the disk has space. Soon afterwards an agent starts on each host that has none, and a new
// coordinator starts if the previous one has exited. The job must then end in bounded time, all agents must
// exit, and no worker may be left.
using RecordSteps = std::function<StepSink()>;
SimResult RunScript(const Script& script, bool print, RecordSteps record = {});

// Like RunScript, but passes all lines of the trace, including details, to `sink`.
SimResult TellScript(const Script& script, Trace::Sink sink);

// Same as RunScript(DrawScript(seed), print).
SimResult RunSeed(uint64_t seed, bool print);

}  // namespace ddprun::sim
