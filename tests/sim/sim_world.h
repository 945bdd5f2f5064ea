// A job in a bottle: coordinator, agents, workers and the network between them, with faults from a seed, then
// calm.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun::sim {

struct SimResult {
  std::string broken;       // the first rule that did not hold; empty: all held
  uint64_t trace_hash = 0;  // equal for equal seeds
  // What happened, so that a test can tell that it saw something.
  int64_t steps = 0;
  int64_t rounds = 0;
  int64_t restarts = 0;
  int64_t kills = 0;
  int64_t freezes = 0;
  int64_t cuts = 0;
  int64_t stalls = 0;
  int64_t signals = 0;
};

// Runs one seed to its end. `print`: tell the story on stdout.
//   Faults come for some minutes of simulated time: agents killed, stopped and continued, signalled, cut off
//   (both ways, the bytes held back or lost with the connection), a coordinator that stands still, workers
//   that fail, are deaf to SIGTERM, or end. Then calm: links heal and are quick, nothing fails any more, and
//   as many nodes come as the job needs. The job must then close in bounded time and every agent end.
SimResult RunSeed(uint64_t seed, bool print);

}  // namespace ddprun::sim
