// The result of a simulation.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/script.h"
#include "tests/sim/world/sim_state.h"

namespace ddprun::sim {

struct SimResult {
  std::string broken;       // the first violated rule; empty: none
  uint64_t trace_hash = 0;  // equal for equal scripts
  // The counts let tests check that faults and events occurred.
  int64_t events = 0;
  int64_t rounds = 0;
  int64_t restarts = 0;
  int64_t steps = 0;  // training steps of the workers
  SurvivalCounts survival = {};
  int64_t snapshots = 0;
  int64_t torn_snapshots = 0;
  int64_t taken_over = 0;  // writers refused because another writer had taken over the directory
  int64_t fences = 0;      // expired fences
  int64_t rejoins = 0;
  int64_t reports = 0;
  int64_t drained = 0;
  int64_t notices = 0;    // notices that the coordinator has accepted
  int64_t stops = 0;      // times that all workers of a round have agreed to stop
  int64_t preempted = 0;  // nodes dismissed as pre-empted
  int64_t interrupts = 0;
  int64_t snapshots_waited_for = 0;
  int64_t succeeded = 0;   // succeeded jobs
  int64_t takeovers = 0;   // jobs with a register: leaders that another process has replaced after a lease
  int64_t hand_overs = 0;  // and those that have handed over
  // Jobs whose voters keep the register.
  int64_t voter_runs = 0;
  int64_t voter_takeovers = 0;
  int64_t voter_hand_overs = 0;
  int64_t voter_changes = 0;  // sets of voters after the first one
  int64_t quorums_lost = 0;   // jobs of which a quorum of the voters has exited before their end
  // Jobs with --hang-timeout.
  int64_t told_still = 0;     // standstills that were told
  int64_t ended_hung = 0;     // rounds that were ended as hung
  int64_t findings = 0;       // findings with the evidence of all nodes
  int64_t late_evidence = 0;  // findings without
  int64_t operators = 0;      // hung workers that an operator has killed
  int64_t stragglers = 0;     // hosts that were named as slower than the others
  int64_t packets = 0;
  int64_t packets_lost = 0;
  std::map<FaultKind, int64_t> fired;  // faults that took effect

  void Add(const SimResult& other);
};

// A human-readable summary on several lines.
std::string ToString(const SimResult& result);

}  // namespace ddprun::sim
