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
//                                                     close requested, in any state -------------------+
// clang-format on
//
// A round that ends is always drained, even when the job is about to close: all its nodes stop their workers
// and answer with NodeReady, which carries their failures. Only then is the cost decided
// (restart_decision.h), the report sent to all nodes (failure_aggregator.h), and the next round sealed or the
// job closed. If a node is lost with its workers, the drain waits until NodeGone arrives or the node's
// lease ends: the node's fence has killed its workers by then.
//
// The machine learns the time only from the `now` of Step. Its only input is the sequence of events with
// their times: machines that receive the same sequence are in the same state.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/dismissal.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/failure_aggregator.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/restart_decision.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// A sealed round. Passed from Running to Draining.
struct ActiveRound {
  Round number = {};
  TimePoint sealed_at = {};
  bool failed = false;         // ended by a failure
  bool finishing = false;      // all workers of some node have exited with 0
  bool step_reported = false;  // by any worker
  FailureAggregator losses = {};
  int unplanned_losses = 0;  // nodes lost, except those that were leaving
};

// Nodes join; no member has workers.
struct Gathering {
  TimePoint since = {};
  std::optional<TimePoint> last_call_end = {};  // when to seal the round; set while enough nodes wait
  std::optional<TimePoint> pause_end = {};      // no round is sealed before this
};

// A snapshot has been requested, after which the round ends.
struct SnapshotAsked {
  InterruptReason why = {};
  TimePoint end = {};  // when the round ends even without a snapshot
};

// The workers of the round are running.
struct Running {
  ActiveRound round = {};
  std::optional<TimePoint> last_call_end = {};  // set while newcomers can be admitted
  std::optional<SnapshotAsked> asked = {};
};

// The nodes of the round are stopping their workers.
struct Draining {
  ActiveRound round = {};
  EndOfRound end_reason = {};
  std::optional<TimePoint> end = {};           // deadline; nullopt: passed, and only leases are awaited
  std::optional<CloseRequested> closing = {};  // set if the job closes after the round
};

// Final.
struct Closed {
  Dismissal outcome = Dismissal::kSucceeded;
  EndOfJob why = {};
};

using RoundState = std::variant<Gathering, Running, Draining, Closed>;

// Pure: equal (state, event, now) give equal effects.
class RoundMachine {
 public:
  enum class State { kGathering, kRunning, kDraining, kClosed };  // same order as RoundState

  explicit RoundMachine(JobRules policy);

  [[nodiscard]] RoundEffects Step(const RoundEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Call Step(Tick{}) no later than this; nullopt: nothing is pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return static_cast<State>(state_.index()); }
  // The round that is running or draining, otherwise the last one; nullopt: no round has been sealed.
  std::optional<Round> round() const { return last_round_; }
  int restarts() const { return restarts_; }
  const Membership& membership() const { return membership_; }
  const JobRules& policy() const { return policy_; }
  // The first cause of the last failed round, or empty.
  const std::string& last_failure() const { return last_failure_; }
  // nullopt: no worker has reported a step.
  std::optional<int64_t> furthest_step() const { return furthest_.step(); }
  // How the job ended, and why.
  //   REQUIRES: state() is kClosed.
  Dismissal outcome() const { return In<Closed>().outcome; }
  const EndOfJob& end() const { return In<Closed>().why; }

  // Nodes that are missing from the job. Takes O(nodes).
  std::vector<AbsentNode> Absent() const { return absent_.List(); }
  // The job has no nodes, and its last node was lost (it neither left nor was dismissed): nodes may return.
  bool deserted() const {
    return Is<Gathering>() && last_round_ && membership_.size() == 0 && last_was_lost_;
  }
  // What the waiting nodes are waiting for.
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
  // The round that is running or draining.
  //   REQUIRES: such a round exists, which is the case whenever a member is in a round.
  ActiveRound& active();
  // `member` is or was in the last sealed round.
  bool InLastRound(const Member& member) const { return member.round && member.round == last_round_; }

  void On(const NodeJoined& e);
  void On(const NodeHeard& e);
  void On(const WorkersFailed& e);
  void On(const WorkersSucceeded& e);
  void On(const NodeReady& e);
  void On(const SnapshotTaken& e);
  void On(const NodeLeaving& e);
  void On(const NodeLeft& e);
  void On(const NodeLost& e);
  void On(const NodeGone& e);
  void On(const DrainRequested& e);
  void On(const CloseRequested& e);
  void On(const Tick&) {}

  // Returns the member if it is in `round`; otherwise emits Refuse and returns null.
  const Member* ValidateSender(const NodeId& id, Round round);
  void Reported(ActiveRound& round, int64_t step);
  // Removes a member that has no workers. Ends the round if the member was running in it.
  void Remove(const NodeMissed& missed);
  // Like Remove, but a member whose workers may be running stays as kLost until the workers are known to have
  // exited.
  void Lose(const NodeMissed& missed);
  // The common part of Remove and Lose.
  void Missed(const Member& member, const NodeMissed& missed);
  // Counts a failure or loss that originated on `host`.
  void Blame(const std::string& host);
  // Number of nodes that the next round needs: the larger of min_nodes and the quorum.
  int MinNodes() const;
  bool Enough() const { return membership_.count(Phase::kWaiting) >= MinNodes(); }
  // Takes out a member that was to be drained.
  void LetGo(const NodeId& id);
  void ExpireLeases();
  void ExpireJoins();
  void ExpireDrain();

  // When the state changes without an event; nullopt: never.
  std::optional<TimePoint> DeadlineOf(const Gathering& s) const;
  std::optional<TimePoint> DeadlineOf(const Running& s) const;
  std::optional<TimePoint> DeadlineOf(const Draining& s) const { return s.end; }
  std::optional<TimePoint> DeadlineOf(const Closed&) const { return std::nullopt; }

  // Performs the transitions that the members allow.
  void Advance();
  void AdvanceGathering(Gathering& s);
  void AdvanceRunning(Running& s);
  void AdvanceDraining(const Draining& s);
  // True if waiting newcomers can be admitted, now or when the last call ends.
  bool LetsIn(const Running& s) const;
  int Newcomers() const { return membership_.count(Phase::kWaiting) - membership_.excluded_waiting(); }
  // Why the running round should be interrupted; nullopt: it should not.
  std::optional<InterruptReason> WhyInterrupt(const Running& s) const;
  void Interrupt(Running& s, const InterruptReason& why);

  // State changes. They invalidate references into the previous state.
  void Seal(const SealReason& why);  // from Gathering and Draining
  void Drain(EndOfRound why);        // from Running
  void Gather(std::optional<TimePoint> pause_end);
  void Close(Dismissal outcome, EndOfJob why);

  // Sends the report of the last round to its nodes, unless there were neither failures nor losses.
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
  int electorate_ = 0;                   // nodes of the last round, except those that left or were taken out
  bool last_was_lost_ = false;           // the node removed last was lost
  std::optional<TimePoint> notice_end_;  // when to notify the waiting nodes

  // State of the current Step.
  TimePoint now_;
  RoundEffects effects_;
};

}  // namespace ddprun
