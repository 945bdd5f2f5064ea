#include "tests/sim/world/sim_result.h"

#include "absl/strings/str_cat.h"

namespace ddprun::sim {

void SimResult::Add(const SimResult& other) {
  events += other.events;
  rounds += other.rounds;
  restarts += other.restarts;
  steps += other.steps;
  survival.parked += other.survival.parked;
  survival.survived += other.survival.survived;
  survival.recovered += other.survival.recovered;
  snapshots += other.snapshots;
  torn_snapshots += other.torn_snapshots;
  taken_over += other.taken_over;
  fences += other.fences;
  rejoins += other.rejoins;
  reports += other.reports;
  drained += other.drained;
  notices += other.notices;
  stops += other.stops;
  preempted += other.preempted;
  interrupts += other.interrupts;
  snapshots_waited_for += other.snapshots_waited_for;
  succeeded += other.succeeded;
  takeovers += other.takeovers;
  hand_overs += other.hand_overs;
  voter_runs += other.voter_runs;
  voter_takeovers += other.voter_takeovers;
  voter_hand_overs += other.voter_hand_overs;
  voter_changes += other.voter_changes;
  quorums_lost += other.quorums_lost;
  told_still += other.told_still;
  ended_hung += other.ended_hung;
  findings += other.findings;
  late_evidence += other.late_evidence;
  operators += other.operators;
  stragglers += other.stragglers;
  packets += other.packets;
  packets_lost += other.packets_lost;
  for (const auto& [kind, count] : other.fired) fired[kind] += count;
}

std::string ToString(const SimResult& r) {
  std::string faults;
  for (const auto& [kind, count] : r.fired)
    absl::StrAppend(&faults, faults.empty() ? "" : ", ", ToString(kind), " ", count);
  return absl::StrCat(
      r.events, " events, ", r.packets, " packets (", r.packets_lost, " lost)\n", r.rounds, " rounds, ",
      r.restarts, " restarts, ", r.interrupts, " rounds interrupted (", r.snapshots_waited_for,
      " asked for a snapshot first), ", r.reports, " reports sent, ", r.rejoins, " rejoins, ", r.drained,
      " nodes drained, ", r.fences, " fences expired\n", r.notices, " notices, ", r.stops,
      " rounds stopped by their workers, ", r.preempted, " nodes pre-empted\n", r.steps, " steps, ",
      r.snapshots, " snapshots, ", r.torn_snapshots, " torn, ", r.taken_over, " writers refused, ",
      r.succeeded, " jobs succeeded, ", r.takeovers, " takeovers, ", r.hand_overs, " hand-overs\n",
      r.voter_runs, " jobs with voters: ", r.voter_takeovers, " takeovers, ", r.voter_hand_overs,
      " hand-overs, ", r.voter_changes, " changes of voters, ", r.quorums_lost, " quorums lost\n",
      r.told_still, " standstills told, ", r.ended_hung, " rounds ended as hung, ", r.findings,
      " findings with all evidence, ", r.late_evidence, " without, ", r.operators,
      " hung workers killed by an operator, ", r.stragglers, " stragglers told\n", r.survival.parked,
      " workers parked, ", r.survival.survived, " went on with their state, ", r.survival.recovered,
      " committed a step of the round before\nfaults: ", faults);
}

}  // namespace ddprun::sim
