// Rules about rounds that stand still, and what the simulation knows of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/assignment.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/sim_result.h"
#include "tests/sim/world/straggler_rules.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// A rank is hung if it makes no steps until it is killed. The rules, which hold for all coordinators of a job with --hang-timeout:
//
// - A round with a hung rank is told, and with --on-hang=restart ended, at most kMargin after the limit, counted from the last
//   disturbance of agents, coordinators and the network. Evidence that is missing or late does not delay this. A request for a snapshot
//   counts as a disturbance until it times out.
// - A round is ended as hung only after a time without a step, on each node, of at least the limit. It is told only after a time
//   without a step of at least the limit, less a second. A round none of whose ranks has hung is never ended.
// - If the evidence of all nodes came in time, the finding about a round with hung ranks names no rank that waits in a collective. It
//   names some rank, unless more than half of the ranks hang.
//
// The limit is SECONDS. With `auto` it is known to the agents only; the rules use bounds of it: 30 s at least, and at most nine times the
// longest time between two steps in the job, or 10 minutes if the ranks have not made enough steps in the round.
//
// With --on-hang=report, an operator kills a hung rank after the round was told. With `auto`, an operator does the same much later,
// because a round of which too little is known is told only.
class HangRules {
 public:
  HangRules(const Settings* settings, SimClock* clock, Trace* trace)
      : settings_(*settings), clock_(*clock), trace_(*trace), stragglers_(clock, trace) {}

  // --- From the workers. A round is identified by its master.
  // The workers of a host, so many, do a step in this share of its usual time.
  void Step(const Assignment& round, const std::string& host, size_t workers, int percent) {
    stragglers_.Step(round, host, workers, percent);
  }
  // The workers of a host begin a step.
  void Progress(const Assignment& round, const std::string& host);
  // A worker hangs. `kill`: sends it SIGKILL, unless it has ended.
  void Hangs(const Assignment& round, LocalRank rank, std::function<void()> kill);
  void Gone(const Assignment& round, LocalRank rank, const std::string& host, bool was_last);
  // Evidence was collected of this worker.
  void Evidence(const Assignment& round, LocalRank rank, bool waits);

  // --- From the coordinators, after each step of a machine.
  void Check(const void* coordinator, const RoundEvent& event, const RoundEffects& effects,
             const RoundMachine& machine);

  // Until then messages or answers may be late.
  void DisturbedUntil(TimePoint until) {
    disturbed_until_ = std::max(disturbed_until_, until);
    stragglers_.DisturbedUntil(disturbed_until_);
  }
  void AddCounts(SimResult& result) const;

 private:
  using Master = std::pair<std::string, int>;  // address and port, which no two rounds share
  struct Host {
    TimePoint last;       // when its workers began their last step
    TimePoint pause_end;  // of the longest of the recent pauses
    Duration longest_pause = {};
    int steps = 0;
  };
  struct RoundState {
    int64_t world_size = 0;
    std::map<std::string, Host> hosts;                 // whose workers have begun a step, and have not ended
    std::map<int64_t, std::function<void()>> hanging;  // by rank
    bool had_hung = false;                             // a rank has hung, which may have been killed since
    TimePoint hangs_since;                             // of the first one
    std::optional<TimePoint> told;                     // since hangs_since
    bool over = false;
    // Of the last request for evidence.
    int64_t request = 0;
    std::set<NodeId> asked, came;
    std::map<int64_t, bool> waits;  // by rank, in the newest evidence
  };

  bool on() const { return settings_.rules.hang_timeout != HangTimeout::Off(); }
  bool learns() const { return settings_.rules.hang_timeout == HangTimeout::Auto(); }
  RoundState& At(const Assignment& round) { return rounds_[{round.master_addr, round.master_port}]; }
  void Broken(const std::string& rule) { trace_.Broken(clock_.now(), rule); }
  // Whether all nodes have made so many steps in the round that their agents know how long a step takes.
  bool Learnt(const RoundState& round) const;
  // The round ends, at least on one of its nodes.
  void NoteCutOff(const RoundState& round);
  // How long a hung round may go on until it is told, and until it is ended.
  Duration ToldAfter(const RoundState& round) const;
  Duration EndsAfter(const RoundState& round) const;
  void Await(const Master& master);
  void OnNote(RoundState& round, Round number, const note::StandsStill& note);
  void CheckFinding(const RoundState& round, Round number, const std::string& text);
  void KillLater(const Master& master, Duration later);

  const Settings& settings_;
  SimClock& clock_;
  Trace& trace_;
  StragglerRules stragglers_;
  std::map<Master, RoundState> rounds_;
  std::map<const void*, std::pair<Round, Master>> running_;  // the round of each coordinator
  TimePoint disturbed_until_ = SimClock::kStart;
  Duration longest_{};  // the longest time between two steps of a node so far
  // The end of a round has cut off a pause of a hung round; then agents allow longer pauses.
  bool cut_off_ = false;
  int64_t told_ = 0, ended_ = 0, findings_ = 0, late_evidence_ = 0, operators_ = 0;
};

}  // namespace ddprun::sim
