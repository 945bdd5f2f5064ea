// The rounds of one job: their members, when a round is sealed, when it ends, and what a failure costs.
//
// clang-format off
//                 max joined, or min joined and last call over
//   +-----------+ ------------------------------------------------> +---------+  all succeeded     +--------+
//   | Gathering |                                                   | Running | -----------------> | Closed |
//   +-----------+ <-+             +-- seal: min joined -----------> +---------+                    +--------+
//                   |             |                                   |  worker failed, node lost,    ^
//        fewer than |  +----------+                                   |  newcomers due, node to be    |
//        min left   +--| Draining | <---------------------------------+  drained (the last two:       |
//                      +----------+                                      at a snapshot, if requested)  |
//                           +------ failed; no restart is left, or none would help --------------------+
//                                      close requested, or host pre-empted, in any state ----------------+
// clang-format on
//
// A round that ends before all its workers have succeeded is drained, even if the job then closes: all its
// nodes stop their workers and answer with NodeReady, which contains their failures. Then the machine
// decides the cost (restart_decision.h), sends the report to all nodes of the round (failure_aggregator.h),
// and seals the next round, gathers more nodes or closes the job. If a node is lost with its workers, the
// drain waits until NodeGone arrives or the lease of the node ends. The fence of the node kills the workers
// before the lease ends. An immediate CloseRequested, or a second one, closes the job without a drain.
//
// After a notice of pre-emption (NoticeGiven) the workers of the round are asked to stop after a snapshot. The round ends when
// they have stopped, or in time for the node with the notice to stop them. What fails in the round after the notice costs
// nothing. The nodes with a notice are let go; the others go on, or wait for more nodes. If the notice is for the node that
// hosts the coordinator, the job closes, or the coordinator moves.
//
// The coordinator moves if its job can go on under another one, and the host leaves, is drained or pre-empted, or
// HandOverRequested arrives: the round is drained, and no node parks its workers. Then all nodes are told to look for the
// other coordinator (HandOver), which begins with the charter of this one.
//
// The only input of the machine is the sequence of events with their times. Machines that receive the same
// sequence are in the same state.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/dismissal.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/charter.h"
#include "rendezvous/core/failure_aggregator.h"
#include "rendezvous/core/hang_machine.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/restart_decision.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/stragglers.h"

namespace ddprun {

// A sealed round. It is passed from Running to Draining.
struct ActiveRound {
  Round number = {};
  TimePoint sealed_at = {};
  bool failed = false;         // ended by a failure
  bool finishing = false;      // all workers of some node have exited with 0
  bool step_reported = false;  // a worker has reported a step
  FailureAggregator losses = {};
  int unplanned_losses = 0;  // number of lost nodes that were not leaving
  bool unfinished = false;   // workers have exited with 0 without saying that all steps are done
  std::optional<NodePreempted> notice = {};  // the first one since the round was sealed
  HangMachine hang = {};
  std::string standstill = {};  // what was told; empty while it makes progress
  Stragglers stragglers = {};
  bool hang_proven = false;  // ended because it stood still, and HangFinding::proven
};

// A new coordinator waits for the members of the last round.
struct Resuming {
  std::multiset<std::string> awaited = {};  // hosts, as in Charter::electorate
  TimePoint end = {};
  Takeover how = Takeover::kHandedOver;
  bool coordinator_gone = false;  // its node is no longer awaited
  Duration ran = {};              // how long the workers of the last round ran
};

// Nodes are joining, and no member has workers.
struct Gathering {
  TimePoint since = {};
  std::optional<TimePoint> last_call_end = {};  // when to seal a round; set while enough nodes are waiting
  std::optional<TimePoint> pause_end = {};      // no round is sealed before this time
  std::optional<Resuming> resuming = {};
};

// A snapshot has been requested. The round ends when the snapshot is complete.
struct SnapshotAsked {
  InterruptReason why = {};
  TimePoint since = {};
  TimePoint end = {};                // when the round ends even without a snapshot
  bool stops = false;                // the workers stop after the snapshot
  std::optional<int64_t> step = {};  // with `stops`: the step of the snapshot, once it is complete
};

// The workers of the round are running.
struct Running {
  ActiveRound round = {};
  std::optional<TimePoint> last_call_end = {};  // when to admit newcomers; set while there are any to admit
  std::optional<SnapshotAsked> asked = {};
};

// The nodes of the round are stopping their workers.
struct Draining {
  ActiveRound round = {};
  EndOfRound end_reason = {};
  std::optional<TimePoint> end = {};           // deadline for NodeReady; nullopt after it has passed
  std::optional<CloseRequested> closing = {};  // set if the job closes after the round
};

// Final.
struct Closed {
  Dismissal outcome = Dismissal::kSucceeded;
  EndOfJob why = {};
};

// Final, for this machine: another coordinator continues the job.
struct HandedOver {
  CoordinatorMoves why = {};
};

using RoundState = std::variant<Gathering, Running, Draining, Closed, HandedOver>;

// Pure: equal state, event and now give equal effects.
class RoundMachine {
 public:
  enum class State { kGathering, kRunning, kDraining, kClosed, kHandedOver };  // same order as RoundState

  explicit RoundMachine(JobRules policy);
  // Continues a job under a new coordinator.
  //   notes: receives the first notes.
  RoundMachine(const Charter& charter, Takeover how, TimePoint now, RoundEffects& notes);

  [[nodiscard]] RoundEffects Step(const RoundEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Returns the latest time for the next Step(Tick{}), or nullopt if nothing is pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return static_cast<State>(state_.index()); }
  // The number of the last sealed round, or nullopt if no round has been sealed.
  std::optional<Round> round() const { return last_round_; }
  int restarts() const { return restarts_; }
  const Membership& membership() const { return membership_; }
  // Whether NodeGone may be reported for the node of the coordinator of the last round, with this token.
  bool WasCoordinator(const NodeId& node, const std::string& token) const {
    return !node.empty() && !token.empty() && node == coordinator_node_ && token == coordinator_token_;
  }
  const JobRules& policy() const { return policy_; }
  // The first cause of the last failed round under this coordinator. Empty if no round has failed.
  const std::string& last_failure() const { return last_failure_; }
  // Of the running round, if users were told that it stands still: since when, and which ranks are behind. Empty otherwise.
  std::string standstill() const {
    const auto* const running = std::get_if<Running>(&state_);
    return running == nullptr ? "" : running->round.standstill;
  }
  // The step times of the running round; null if no round runs.
  const Stragglers* stragglers() const {
    const auto* const running = std::get_if<Running>(&state_);
    return running == nullptr ? nullptr : &running->round.stragglers;
  }
  // Returns nullopt if no worker has reported a step.
  std::optional<int64_t> furthest_step() const { return furthest_.step(); }
  // How the job ended, and why.
  //   REQUIRES: state() is kClosed.
  Dismissal outcome() const { return In<Closed>().outcome; }
  const EndOfJob& end() const { return In<Closed>().why; }
  // Whether the job goes on under this machine.
  bool open() const { return !Is<Closed>() && !Is<HandedOver>(); }

  // The nodes that are missing from the job. Runs in O(nodes).
  std::vector<AbsentNode> Absent() const { return absent_.List(); }
  // Returns whether the job has no nodes and its last node was lost, so that nodes may return. A node that
  // left or was dismissed does not count as lost.
  bool deserted() const {
    return Is<Gathering>() && last_round_ && membership_.size() == 0 && last_was_lost_;
  }
  // When the last of the pre-empted nodes that return does so; nullopt if none is waited for.
  std::optional<TimePoint> back_at() const { return back_at_; }
  // What the next coordinator must know. Effects of a step that has changed charter_version() must not be visible before the
  // charter is in the job's register. O(nodes).
  Charter charter() const;
  int64_t charter_version() const { return charter_version_; }
  // Returns what the waiting nodes are waiting for.
  Waiting WhatIsWaitedFor(TimePoint now) const;

 private:
  template <typename S>
  bool Is() const {
    return std::holds_alternative<S>(state_);
  }
  // REQUIRES: Is<S>().
  template <typename S>
  const S& In() const {
    DDPRUN_CHECK(Is<S>(), StateForCheck());
    return std::get<S>(state_);
  }
  template <typename S>
  S& In() {
    DDPRUN_CHECK(Is<S>(), StateForCheck());
    return std::get<S>(state_);
  }
  // Returns a line for abort messages.
  std::string StateForCheck() const;
  // The running or draining round.
  //   REQUIRES: there is such a round. This is the case if a member is in a round.
  ActiveRound& active();
  // Returns whether `member` is or was in the last sealed round.
  bool InLastRound(const Member& member) const { return member.round && member.round == last_round_; }

  void On(const NodeJoined& e);
  void On(const NodeHeard& e);
  void On(const WorkersFailed& e);
  void On(const WorkersSucceeded& e);
  void On(const NodeReady& e);
  void On(const SnapshotTaken& e);
  void On(const StandstillChanged& e);
  void On(const EvidenceCame& e);
  void On(const StepsTimed& e);
  void On(const NodeLeaving& e);
  void On(const NodeLeft& e);
  void On(const NodeLost& e);
  void On(const NodeGone& e);
  void On(const DrainRequested& e);
  void On(const NoticeGiven& e);
  void On(const CloseRequested& e);
  void On(const HandOverRequested& e);
  void On(const Tick&) {}

  // Returns the member if it is in `round`. Otherwise emits Refuse and returns null. If the node is a
  // member, its lease is renewed in both cases.
  const Member* ValidateSender(const NodeId& id, Round round);
  void Reported(ActiveRound& round, int64_t step);
  // Removes a member that has no workers left. Ends the round if the member was running in it.
  void Remove(const NodeMissed& missed);
  // Like Remove, but a member whose workers may be running stays in phase kLost until the workers are known
  // to have exited.
  void Lose(const NodeMissed& missed);
  // Tells a node that is stopping its workers that no round follows.
  void StopForGood(const Member& member);
  // Whether the node's agent has exited, and no other starts on its host.
  bool ExitedForGood(const MissedReason& why) const;
  // The common part of Remove and Lose.
  void Missed(const Member& member, const NodeMissed& missed);
  // Counts a failure or loss on `host`. Excludes the host if the count reaches exclude_after.
  void Blame(const std::string& host);
  // Number of nodes that the next round needs: the larger of min_nodes and the quorum.
  int MinNodes() const;
  bool Enough() const { return membership_.count(Phase::kWaiting) >= MinNodes(); }
  // Whether a round could be sealed, but a waiting node leaves, whose parked workers have not exited. It is not in the next
  // round, which waits until it has left.
  bool WaitsForLeaver() const { return Enough() && membership_.leaving_waiting() > 0; }
  // Does what the round's HangMachine says. May end the round.
  void AdvanceHang();
  void EndHung();
  // Asks the workers of a node to stop after a snapshot.
  void AskToStop(const Member& member);
  // Tells a node with a notice how much time is left, because it may not have the notice itself.
  void TellTimeLeft(const Member& member);
  // The node whose pre-emption ends the job, because it hosts the coordinator, if it has a notice; otherwise null.
  const Member* HostWithNotice() const;
  // Returns when a node that begins to wait now has waited for too long.
  TimePoint JoinEnd() const { return std::max(now_, back_at_.value_or(now_)) + policy_.join_timeout; }
  // Removes and dismisses a member that is to be drained or has a notice of pre-emption.
  void LetGo(const NodeId& id);
  void ExpireLeases();
  void ExpireJoins();
  // Dismisses the waiting nodes if no round will be sealed, because too few nodes wait or can still join.
  void DismissIfTooFewCanJoin();
  // Likewise, whether or not members of the last round may join again.
  void DismissIfTooFewAreLeft();
  // Removes and dismisses a waiting node.
  void EndWait(const NodeId& id, DismissReason why, MissedReason missed);
  void ExpireDrain();

  // Returns when the state changes without an event, or nullopt if it does not.
  std::optional<TimePoint> DeadlineOf(const Gathering& s) const;
  std::optional<TimePoint> DeadlineOf(const Running& s) const;
  std::optional<TimePoint> DeadlineOf(const Draining& s) const { return s.end; }
  std::optional<TimePoint> DeadlineOf(const Closed&) const { return std::nullopt; }
  std::optional<TimePoint> DeadlineOf(const HandedOver&) const { return std::nullopt; }

  // Performs the transitions that are now possible.
  void Advance();
  void AdvanceGathering(Gathering& s);
  // A new coordinator no longer waits for the members of the last round. Returns whether the state has changed.
  bool EndResuming(Gathering& s);
  // Returns whether the job waits for members of the last round.
  bool WaitsForMembers(const Gathering& s) const {
    return s.resuming && !s.resuming->awaited.empty() &&
           membership_.count(Phase::kWaiting) < policy_.max_nodes;
  }
  // Whether the coordinator can move away from the node, which is its host.
  static bool Movable(const NodeInfo& info) { return info.hosts && info.leased; }
  // The coordinator moves when the round has ended. Later calls do not replace the first reason.
  void BeginHandOver(CoordinatorMoves why);
  // A node that was in the last round joins under a new coordinator.
  void CameBack(const NodeInfo& info);
  // An earlier coordinator was asked to drain this node, which has joined again.
  void DrainAgain(const NodeInfo& info);
  // The node of the coordinator of the last round has no workers.
  void CoordinatorsNodeIsGone(Resuming& resuming) const;
  // A node of the last round has left, or was taken out.
  void LeftElectorate(const std::string& host);
  // A round has lost nodes without a notice. Closes the job and returns nullopt if such losses repeat without progress.
  //   Returns the pause before the next round.
  std::optional<Duration> CountLosses(Duration ran, const std::optional<EndOfRound>& why);
  void AdvanceRunning(Running& s);
  void AdvanceDraining(const Draining& s);
  // Returns whether waiting newcomers can be admitted, now or when the last call ends.
  bool LetsIn(const Running& s) const;
  int Newcomers() const { return membership_.count(Phase::kWaiting) - membership_.excluded_waiting(); }
  // Returns why the running round should be interrupted, or nullopt if it should not.
  std::optional<InterruptReason> WhyInterrupt(const Running& s) const;
  void Interrupt(Running& s, const InterruptReason& why);
  void InterruptForNotice(Running& s, const InterruptReason& why);

  // State changes. They invalidate references into the previous state.
  void Seal(const SealReason& why);  // from Gathering or Draining
  // From Running.
  //   closing: no further round follows.
  void Drain(EndOfRound why, bool closing = false);
  void Gather(std::optional<TimePoint> pause_end);
  void Close(Dismissal outcome, EndOfJob why);
  void HandOverNow();  // from Gathering or Draining

  // Sends the report of the last round to its nodes, if there were failures or losses.
  void ShareReport(const ActiveRound& round, const std::string& outcome);
  void ShareReport(JobReport report, const std::string& outcome);
  void TellWaitersWithin(Duration delay);
  void TellWaiters();
  void DismissNode(const NodeId& id, Dismissal reason, DismissReason why);

  const JobRules policy_;
  RoundState state_;
  std::optional<Round> last_round_;  // last sealed round
  int restarts_ = 0;
  Membership membership_;
  AbsentNodes absent_;
  FurthestStep furthest_;
  std::string last_failure_;

  HostFailures hosts_;
  LossStreak loss_row_;
  std::multiset<std::string> electorate_;  // see Charter
  // See Charter.
  std::string coordinator_host_;
  NodeId coordinator_node_;
  std::string coordinator_token_;
  std::map<GroupRank, std::string> drains_;  // of nodes that have not joined again since the takeover
  int64_t charter_version_ = 0;
  std::optional<CoordinatorMoves> hand_over_;  // set: the coordinator moves when the round has ended
  bool last_was_lost_ = false;                 // whether the node that was removed last was lost, or returns
  std::optional<TimePoint> back_at_;
  std::optional<TimePoint> notice_end_;  // when to notify the waiting nodes

  // State of the current Step.
  TimePoint now_;
  RoundEffects effects_;
};

}  // namespace ddprun
