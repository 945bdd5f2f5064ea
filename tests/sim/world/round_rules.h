// Invariants of a job, checked after each step of its RoundMachine against an independent model of its state.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/dismissal.h"
#include "rendezvous/core/charter.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/world/admission_rules.h"
#include "tests/sim/world/notice_rules.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// Facts known to the simulation but not to the coordinator.
struct NodeFacts {
  // Whether workers of the node run. False while the host is suspended and shortly after it resumes: if the
  // fence expired during the suspension, the warden can kill the workers only after the host resumes.
  std::function<bool(const NodeId&)> has_workers;
  // Whether the coordinator was recently stopped for longer than the lease and received no heartbeats.
  std::function<bool()> has_slept;
  // Whether the job has a register, so that its coordinator may move. See also TakeoverRules.
  bool registered = false;
};

// - A round has one membership: group ranks are 0 to n-1, the assignments of its n nodes agree, and survivors
//   keep their order and are preferred to newcomers.
// - min_nodes <= n <= max_nodes, and n is the largest multiple of node_unit that the available nodes allow.
// - The round number increases by one each time a round is sealed, and does not change otherwise.
// - A failure costs one restart, regardless of how many nodes report it. Joins, losses, drains and snapshots
//   cost none. The job fails only when its restarts are used up or another rule ends it.
// - No round is sealed while workers of an earlier round run on any node, or when the coordinator's own agent
//   is about to exit.
// - No member has an expired lease. A node that is evicted because its lease expired has no workers.
// - A round is interrupted only for a drain, for newcomers if --scale-up permits, or because the coordinator of a job with
//   a register hands over. A round whose workers report steps first waits for a snapshot, for at most the snapshot
//   timeout. With --scale-up=immediate it does not wait before it is interrupted for newcomers.
// - A node that is to be drained gets no further round and is dismissed as drained, unless it is lost or the
//   job ends.
// - After a round that failed or lost a node, each of its remaining nodes gets the report before it gets a
//   new round, waits, or is dismissed because the job failed.
// - The rules of notices of pre-emption, and of expected hosts; see NoticeRules and AdmissionRules.
// - A closed job stays closed, has no members, and only answers nodes.
class RoundRules {
 public:
  RoundRules(Trace* trace, JobRules policy, NodeFacts facts);
  // The rules of a machine that continues a job with the charter of an earlier coordinator. All rules hold across the takeover
  // for what the charter preserves and the nodes say when they join. Notices of pre-emption, requests to drain a node, and
  // expected hosts that have exited are forgotten; so are their rules.
  RoundRules(Trace* trace, const Charter& charter, Takeover how, NodeFacts facts);

  // Checks one step of the machine. `now` is the coordinator's time; `sim_now` is the simulated time for the
  // trace.
  void Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine, TimePoint now,
             TimePoint sim_now);

  int64_t rounds_sealed() const { return rounds_sealed_; }
  int64_t restarts() const { return restarts_; }
  int64_t reports() const { return reports_; }
  int64_t drained() const { return drained_; }
  int64_t interrupts() const { return interrupts_; }
  const NoticeRules& notices() const { return notices_; }
  int64_t snapshots_waited_for() const { return snapshots_waited_for_; }

 private:
  struct Seat {
    Round round;
    int64_t group_rank = 0;
  };
  using Sealed = std::map<NodeId, Assignment>;

  void Broken(const std::string& rule);
  // A node that was in a round of an earlier coordinator has joined.
  void NoteReturn(const NodeInfo& info);
  // A node has left the job or was taken out.
  void LeaveElectorate(const NodeId& id);
  void Note(const RoundEvent& event);
  // The machine has ended the round as hung.
  void NoteHung(const RoundEffects& effects);
  void CheckEffects(const RoundEffects& effects, Sealed& sealed);
  void CheckSealed(const Sealed& sealed);
  void CheckOrder(const Sealed& sealed);
  void CheckEnd(const RoundEvent& event, const RoundEffects& effects);
  void CheckCharge(bool sealed);
  void CheckDismissal(const Dismiss& dismiss);
  void CheckNewlyExcluded(const note::HostExcluded& note);
  void CheckReport(const TellReport& report);
  void CheckLeases();
  // Whether the round must end at the next snapshot: with the newcomers the job has max_nodes, or a node of
  // the round is to be drained.
  bool MustEnd() const;
  bool CrashLoop() const;
  // Number of members that a round needs: min_nodes, and with --quorum=majority at least half of the nodes of
  // the last round.
  int Needed() const;
  // Whether the node's host is excluded. Rounds omit excluded hosts if there are enough other nodes.
  bool IsExcluded(const NodeId& id) const;
  void CheckExclusion(const Sealed& sealed);
  // Checks that a host is excluded after policy_.exclude_after failures, and not earlier.
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
  std::set<NodeId> members_;     // all members, including nodes that wait
  std::set<NodeId> lost_nodes_;  // subset of members_ that is in phase kLost
  std::set<NodeId> in_round_;    // nodes whose workers run, have succeeded or are being stopped
  std::set<NodeId> working_;     // subset of in_round_ whose workers have not succeeded
  // State of the round that is running or draining.
  bool failed_ = false;  // a failure ended the round
  bool lost_ = false;    // the round has lost a node
  // As far as the workers could detect, each failure of the round followed from another failure.
  bool consequences_only_ = true;
  bool early_ = false;  // a worker failed before min_uptime and before its first step
  bool step_reported_ = false;
  bool succeeded_ = false;                    // the workers of at least one node have succeeded
  std::optional<TimePoint> asked_at_;         // when a snapshot was requested
  bool snapshot_ = false;                     // a snapshot was taken since asked_at_
  std::optional<TimePoint> waits_since_;      // asked_at_, if MustEnd() was true in each step since then
  std::set<NodeId> owed_;                     // members that must get the report before any other message
  std::map<NodeId, int> told_;                // number of failures that each node reported
  std::map<std::string, bool> failed_hosts_;  // true: a failure on the host did not follow from another
  // State of the job.
  NoticeRules notices_;
  AdmissionRules admission_;
  std::map<NodeId, Seat> seats_;  // the seat of each node in its last round
  std::set<NodeId> electorate_;   // nodes of the last round, except those that left or were drained
  // Hosts of these nodes, if an earlier coordinator has sealed that round.
  std::multiset<std::string> former_;
  std::map<NodeId, std::string> host_of_;
  std::set<std::string> excluded_hosts_;
  std::set<std::string> newly_excluded_;     // hosts excluded in the current Check
  std::map<std::string, int> causes_alone_;  // by host: rounds in which only workers of this host failed
  // By host: how often the host was lost, plus the rounds with a failure on the host that did not follow from
  // another failure.
  std::map<std::string, int> may_be_cause_;
  std::set<NodeId> to_be_drained_;  // contains only members
  std::set<NodeId> unleased_;       // nodes of the coordinator's own agent
  bool host_leaves_ = false;        // the coordinator's own agent, and with it the coordinator, exits soon
  std::optional<Dismissal> close_requested_;
  bool hands_over_ = false;          // the coordinator moves to another process
  std::optional<int64_t> furthest_;  // the highest step that was reported
  bool further_ = false;             // furthest_ has increased since the last restart was charged
  int vain_ = 0;                     // consecutive restarts without progress
  int lossy_rounds_ = 0;             // consecutive rounds that ended with the loss of a node

  int64_t rounds_sealed_ = 0;
  int64_t reports_ = 0;
  int64_t drained_ = 0;
  int64_t interrupts_ = 0;
  int64_t snapshots_waited_for_ = 0;
};

}  // namespace ddprun::sim
