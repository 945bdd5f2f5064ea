// Invariants of a job, checked after each step of its RoundMachine against an independent model of its state.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/dismissal.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Facts known to the simulation but not to the coordinator.
struct NodeFacts {
  // Whether workers of the node run. False while the host is suspended and shortly after it resumes: workers
  // that are due to be killed die in that time.
  std::function<bool(const NodeId&)> has_workers;
  // Whether the coordinator was recently stopped for longer than the lease, so that
  // it received no heartbeats.
  std::function<bool()> has_slept;
};

// - A round has one membership: ranks are 0 to n-1, all nodes get the same assignment, survivors keep their
//   order and their place.
// - min <= n <= max, and n is the largest multiple of node_unit that the nodes allow.
// - The round number increases by one with each sealing, and never otherwise.
// - A failure costs one restart, however many nodes report it. Joins, losses, drains and snapshots cost none.
//   The job fails when its restarts, or the limit of another rule, are used up, and not before.
// - No round is sealed while workers of an earlier round run on any node, or once the coordinator's own agent
//   is about to exit.
// - No member's lease has expired. A node that is evicted for its lease has no workers.
// - A round is interrupted for newcomers according to --scale-up, and for a drain: at a snapshot taken after
//   the request, when the snapshot times out, or when no worker reports steps.
// - A node that is to be drained is in no further round and is dismissed as drained, unless it is lost or the
//   job ends.
// - Every node of a round that failed or lost a node gets the report before any later message.
// - Closed is final, and every node gets an answer.
class RoundRules {
 public:
  RoundRules(Trace* trace, JobRules policy, NodeFacts facts);

  // `now` is the coordinator's time; `sim_now` is the simulated time for the trace.
  void Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine, TimePoint now,
             TimePoint sim_now);

  int64_t rounds_sealed() const { return rounds_sealed_; }
  int64_t restarts() const { return restarts_; }
  int64_t reports() const { return reports_; }
  int64_t drained() const { return drained_; }
  int64_t interrupts() const { return interrupts_; }
  int64_t snapshots_waited_for() const { return snapshots_waited_for_; }

 private:
  struct Seat {
    Round round;
    int64_t group_rank = 0;
  };
  using Sealed = std::map<NodeId, Assignment>;

  void Broken(const std::string& rule);
  void Note(const RoundEvent& event);
  void CheckEffects(const RoundEffects& effects, Sealed& sealed);
  void CheckSealed(const Sealed& sealed);
  void CheckOrder(const Sealed& sealed);
  void CheckEnd(const RoundEvent& event, const RoundEffects& effects);
  void CheckCharge(bool sealed);
  void CheckDismissal(const Dismiss& dismiss);
  void CheckNewlyExcluded(const note::HostExcluded& note);
  void CheckReport(const TellReport& report);
  void CheckLeases();
  // Whether the round must end at the next snapshot: newcomers fill the job, or a node of the round
  // is to be drained.
  bool MustEnd() const;
  bool CrashLoop() const;
  // Members that a round needs: min_nodes, and with --quorum=majority at least half of the last round.
  int Needed() const;
  // Whether the node's host is excluded: left out of rounds while there are enough other nodes.
  bool IsExcluded(const NodeId& id) const;
  void CheckExclusion(const Sealed& sealed);
  // Checks exclusions: hosts that must be excluded by now, and hosts that must not be.
  void CheckBlame(bool round_is_over);

  Trace* const trace_;
  const JobRules policy_;
  const NodeFacts facts_;
  // Arguments of the current Check.
  const RoundMachine* machine_ = nullptr;
  TimePoint now_;
  TimePoint sim_now_;

  // The machine's state after its previous step.
  RoundMachine::State state_ = RoundMachine::State::kGathering;
  std::optional<Round> round_;
  int restarts_ = 0;
  std::set<NodeId> members_;   // all members, including nodes that wait
  std::set<NodeId> in_round_;  // nodes whose workers run, have succeeded or are being stopped
  std::set<NodeId> working_;   // subset of in_round_ whose workers have not succeeded
  // State of the round that runs or drains.
  bool failed_ = false;  // a failure ended it
  bool lost_ = false;    // it has lost a node
  bool consequences_only_ =
      true;             // every failure in it followed from another, as far as the workers could see
  bool early_ = false;  // a worker failed before its time and its first step
  bool step_reported_ = false;
  bool succeeded_ = false;  // the workers of at least one node have succeeded
  std::optional<TimePoint> asked_at_;
  bool snapshot_ = false;                     // taken since asked_at_
  std::optional<TimePoint> waits_since_;      // asked_at_, if the round has had to end ever since
  std::set<NodeId> owed_;                     // members that must get the report first
  std::map<NodeId, int> told_;                // number of failures that each node reported
  std::map<std::string, bool> failed_hosts_;  // true: a failure there did not follow from another
  // State of the job.
  std::map<NodeId, Seat> seats_;  // of each node's last round
  std::set<NodeId> electorate_;   // nodes of the last round, except those that left or were drained
  std::map<NodeId, std::string> host_of_;
  std::set<std::string> excluded_hosts_;
  std::set<std::string> newly_excluded_;     // in this Check
  std::map<std::string, int> causes_alone_;  // rounds in which only workers of this host failed
  std::map<std::string, int> may_be_cause_;  // losses of the host, and rounds with a failure of its own
  std::set<NodeId> to_be_drained_;           // members only
  std::set<NodeId> unleased_;                // nodes of the coordinator's own agent
  bool host_leaves_ = false;                 // that agent exits, and the coordinator with it
  std::optional<Dismissal> close_requested_;
  std::optional<int64_t> furthest_;
  bool further_ = false;
  int vain_ = 0;          // consecutive restarts without progress
  int lossy_rounds_ = 0;  // consecutive rounds that ended with the loss of a node

  int64_t rounds_sealed_ = 0;
  int64_t reports_ = 0;
  int64_t drained_ = 0;
  int64_t interrupts_ = 0;
  int64_t snapshots_waited_for_ = 0;
};

}  // namespace ddprun::sim
