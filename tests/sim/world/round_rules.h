// The rules that a job keeps, whatever happens: looked at after each step of its RoundMachine, from outside,
// with a memory of their own.
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

// What the world knows and the coordinator does not.
struct NodeFacts {
  // Workers of the node run. While a host stands still nothing runs there, nor in the moment after, in which
  // what is to be killed dies.
  std::function<bool(const NodeId&)> has_workers;
  // The coordinator itself stood still for longer than the lease, until then: it has heard nobody.
  std::function<bool()> has_slept;
};

// - One membership for a round: ranks are 0 to n-1, all nodes are told the same, survivors keep their order
//   and their place.
// - min <= n <= max, a multiple of node_unit, and the largest that the nodes allow.
// - The number of the round goes up by one with each sealing, and never otherwise.
// - A failure costs one restart, however many nodes report it; joins, losses, drains and snapshots cost none.
//   The job fails when a restart, or another rule, is used up, and not before.
// - No round is sealed while workers of any earlier one run, on whatever node, nor once the coordinator's own
//   agent is about to end.
// - No member's lease is over. A node that is evicted for its lease has no workers.
// - A round is interrupted for newcomers as --scale-up says, and for a drain: at a snapshot that came after
//   it was asked for, when the time for it is over, or when no worker reports steps.
// - A node that is to be drained is in no further round and ends as drained, unless it is lost or the job
// ends.
// - Every node of a round that failed, or lost a node, is told the report before anything that follows.
// - Closed is final, and every node gets an answer.
class RoundRules {
 public:
  RoundRules(Trace* trace, JobRules policy, NodeFacts facts);

  // `now` is the coordinator's, `sim_now` that of the trace.
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
  // Newcomers fill the job, or a node of the round is to be taken out: nothing else is waited for.
  bool MustEnd() const;
  bool CrashLoop() const;
  // Members that a round needs: min_nodes, and with a quorum half of the last round.
  int Needed() const;
  // Left out of rounds while there are enough others.
  bool IsExcluded(const NodeId& id) const;
  void CheckExclusion(const Sealed& sealed);
  // Who has failed so often that it must be excluded, and who cannot have.
  void CheckBlame(bool round_is_over);

  Trace* const trace_;
  const JobRules policy_;
  const NodeFacts facts_;
  // Of the Check that is going on.
  const RoundMachine* machine_ = nullptr;
  TimePoint now_;
  TimePoint sim_now_;

  // As the machine was after its last step.
  RoundMachine::State state_ = RoundMachine::State::kGathering;
  std::optional<Round> round_;
  int restarts_ = 0;
  std::set<NodeId> members_;   // all
  std::set<NodeId> in_round_;  // with workers that run, have succeeded or are being stopped
  std::set<NodeId> working_;   // of these the ones that have not succeeded
  // Of the round that runs or drains.
  bool failed_ = false;  // a failure was the first thing that ended it
  bool lost_ = false;    // it has lost a node
  bool consequences_only_ =
      true;             // every failure in it followed from another, as far as the workers could see
  bool early_ = false;  // a worker failed before its time and its first step
  bool step_reported_ = false;
  bool succeeded_ = false;  // a node of it
  std::optional<TimePoint> asked_at_;
  bool snapshot_ = false;                     // came since asked_at_
  std::optional<TimePoint> waits_since_;      // asked_at_, while the round must end all the time since
  std::set<NodeId> owed_;                     // members who must be told the report first
  std::map<NodeId, int> told_;                // failures
  std::map<std::string, bool> failed_hosts_;  // whether a failure there followed from no other
  // Of the job.
  std::map<NodeId, Seat> seats_;  // in the last round of each node
  std::set<NodeId> electorate_;   // nodes of the last round, without those that left it in order
  std::map<NodeId, std::string> host_of_;
  std::set<std::string> excluded_hosts_;
  std::set<std::string> newly_excluded_;     // in this Check
  std::map<std::string, int> causes_alone_;  // rounds that failed by workers of no other host
  std::map<std::string, int> may_be_cause_;  // losses, and rounds that failed with a failure there
  std::set<NodeId> to_be_drained_;           // that it knows
  std::set<NodeId> unleased_;                // of the coordinator's own agent
  bool host_leaves_ = false;                 // that agent ends, and the coordinator with it
  std::optional<Dismissal> close_requested_;
  std::optional<int64_t> furthest_;
  bool further_ = false;
  int vain_ = 0;          // restarts in a row without progress
  int lossy_rounds_ = 0;  // in a row that ended with the loss of a node

  int64_t rounds_sealed_ = 0;
  int64_t reports_ = 0;
  int64_t drained_ = 0;
  int64_t interrupts_ = 0;
  int64_t snapshots_waited_for_ = 0;
};

}  // namespace ddprun::sim
