// What came of a simulation.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/script.h"

namespace ddprun::sim {

struct SimResult {
  std::string broken;       // the first rule that did not hold; empty: all held
  uint64_t trace_hash = 0;  // equal for equal scripts
  // What happened, so that a test can tell that it saw something.
  int64_t events = 0;
  int64_t rounds = 0;
  int64_t restarts = 0;
  int64_t steps = 0;  // of the workers
  int64_t snapshots = 0;
  int64_t torn_snapshots = 0;
  int64_t taken_over = 0;  // snapshots of a round that was over, refused
  int64_t fences = 0;      // that fell
  int64_t rejoins = 0;
  int64_t reports = 0;
  int64_t drained = 0;
  int64_t interrupts = 0;
  int64_t snapshots_waited_for = 0;
  int64_t succeeded = 0;  // jobs
  int64_t packets = 0;
  int64_t packets_lost = 0;
  std::map<FaultKind, int64_t> fired;  // faults that found something to do harm to

  void Add(const SimResult& other);
};

// Some lines for people.
std::string ToString(const SimResult& result);

}  // namespace ddprun::sim
