// `train` with GPUs of the stand-in for CUDA, NCCL and cuBLAS.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/train/child.h"

namespace ddprun {

using Flags = std::vector<std::string>;

// The flags of a tiny model. Those of `flags` replace those with the same names.
Flags Tiny(const Flags& flags);

// The environment of a process that finds the stand-in, with these settings of it, whose names begin with DDPRUN_STAND_IN_.
Environment StandIn(const Environment& settings = {});
// Likewise, for ddprun, which needs more variables.
Environment StandInForDdprun(const Environment& settings = {});

// Command lines.
Flags TrainAlone(const Flags& flags);
Flags TrainWithDdprun(int workers, const Flags& agent, const Flags& flags);

// Runs a program that must succeed, and returns its last line: "step=... loss=... sha256=...".
std::string LastLineOf(const Flags& argv, const Environment& environment);
// Those of `train` with --device=cpu, and with --device=cuda.
std::string OnCpu(Flags flags);
std::string OnGpu(Flags flags);

// The process of the worker with this rank that has `flag` on its command line; 0 if there is none.
pid_t WorkerOf(const std::string& flag, int rank);

}  // namespace ddprun
