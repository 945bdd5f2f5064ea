// Rounds of one job: who is in, when a round is sealed, when it ends and what a failure costs.
//
// clang-format off
//                 max joined, or min joined and last call over
//   +-----------+ ------------------------------------------------> +---------+  all succeeded     +--------+
//   | Gathering |                                                   | Running | -----------------> | Closed |
//   +-----------+ <-+             +-- seal: min are there --------> +---------+                    +--------+
//                   |             |                                   |  worker failed, node lost,    ^
//        fewer than |  +----------+                                   |  newcomers due, node to be    |
//        min left   +--| Draining | <---------------------------------+  drained (the last two:       |
//                      +----------+                                      at a snapshot, if asked for)  |
//                           +------ failed, and no restart, or none that would help -------------------+
//                                                     close requested, in any state -------------------+
// clang-format on
//
// A round that ends is always drained, also when the job is to be closed: all its nodes stop their workers
// and answer with NodeReady, which brings what they know. Then, and not before, it is decided what the end
// costs (restart_decision.h), everybody is told why (failure_aggregator.h), and the next round is sealed or the job closed. A
// node that was lost with its workers is waited for until its lease ends, when its fence has killed them, or
// until NodeGone.
//
// Time reaches the machine only as the `now` of Step, and its order of events is its whole input: two
// machines that are given the same log are in the same state.
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

// A round that has been sealed. Running and Draining hold it one after the other.
struct ActiveRound {
  Round number = {};
  TimePoint sealed_at = {};
  bool failed = false;         // it ended by a failure
  bool finishing = false;      // the workers of a node have exited with 0
  bool step_reported = false;  // by any worker
  FailureAggregator losses = {};
  int unplanned_losses = 0;  // nodes that were lost, and did not leave
};

// Nodes join; no member has workers.
struct Gathering {
  TimePoint since = {};
  std::optional<TimePoint> last_call_end = {};  // set while min_nodes are there; the round is sealed then
  std::optional<TimePoint> pause_end = {};      // no round is sealed before
};

// A snapshot was asked for before the round is ended.
struct SnapshotAsked {
  InterruptReason why = {};
  TimePoint end = {};  // the round is ended without a snapshot then
};

// The workers of the round run.
struct Running {
  ActiveRound round = {};
  std::optional<TimePoint> last_call_end = {};  // set while there are newcomers to let in
  std::optional<SnapshotAsked> asked = {};
};

// The nodes of the round stop their workers.
struct Draining {
  ActiveRound round = {};
  EndOfRound end_reason = {};
  std::optional<TimePoint> end = {};           // none: it is over; only leases are waited for
  std::optional<CloseRequested> closing = {};  // the job ends with the round
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
  enum class State { kGathering, kRunning, kDraining, kClosed };  // in the order of RoundState

  explicit RoundMachine(JobRules policy);

  [[nodiscard]] RoundEffects Step(const RoundEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Step(Tick{}) at the latest then; none = nothing pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return static_cast<State>(state_.index()); }
  // The round that is running or draining, else the last one; none before the first.
  std::optional<Round> round() const { return last_round_; }
  int restarts() const { return restarts_; }
  const Membership& membership() const { return membership_; }
  const JobRules& policy() const { return policy_; }
  // The first cause of the last round that failed, or empty.
  const std::string& last_failure() const { return last_failure_; }
  // None: no worker has reported one.
  std::optional<int64_t> furthest_step() const { return furthest_.step(); }
  // How the job ended, and why, for people.
  //   REQUIRES: state() is kClosed.
  Dismissal outcome() const { return In<Closed>().outcome; }
  const EndOfJob& end() const { return In<Closed>().why; }

  // Who should be here and is not. Takes O(nodes).
  std::vector<AbsentNode> Absent() const { return absent_.List(); }
  // Its last nodes were lost, not one after the other let go: they may come back and go on.
  bool deserted() const {
    return Is<Gathering>() && last_round_ && membership_.size() == 0 && last_was_lost_;
  }
  // What nodes that wait would be told now.
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
  // One line in the abort message.
  std::string StateForCheck() const;
  // The round that is running or draining.
  //   REQUIRES: one is; so it is while a member is in a round.
  ActiveRound& active();
  // `member` was in the last round that was sealed, or is in it.
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

  // The member, if it is one and `round` is the one it is in; else says so with Refuse.
  const Member* ValidateSender(const NodeId& id, Round round);
  void Reported(ActiveRound& round, int64_t step);
  // Removes a member without workers; ends the round if it was part of it.
  void Remove(const NodeMissed& missed);
  // The same for a member whose workers may run: it stays, as kLost, until they are known to be dead.
  void Lose(const NodeMissed& missed);
  // What Remove and Lose have in common.
  void Missed(const Member& member, const NodeMissed& missed);
  // A failure, or a loss, began there.
  void Blame(const std::string& host);
  // What the next round needs: min_nodes, and the quorum.
  int MinNodes() const;
  bool Enough() const { return membership_.count(Phase::kWaiting) >= MinNodes(); }
  // Takes a member out because somebody wants that.
  void LetGo(const NodeId& id);
  void ExpireLeases();
  void ExpireJoins();
  void ExpireDrain();

  // When the state has to move on by itself.
  std::optional<TimePoint> DeadlineOf(const Gathering& s) const;
  std::optional<TimePoint> DeadlineOf(const Running& s) const;
  std::optional<TimePoint> DeadlineOf(const Draining& s) const { return s.end; }
  std::optional<TimePoint> DeadlineOf(const Closed&) const { return std::nullopt; }

  // Moves on from the present state as far as its members allow.
  void Advance();
  void AdvanceGathering(Gathering& s);
  void AdvanceRunning(Running& s);
  void AdvanceDraining(const Draining& s);
  // Newcomers wait that the running round could have, now or when the last call is over.
  bool LetsIn(const Running& s) const;
  int Newcomers() const { return membership_.count(Phase::kWaiting) - membership_.excluded_waiting(); }
  // Why the running round should be ended though nothing is wrong with it; none: it should not.
  std::optional<InterruptReason> WhyInterrupt(const Running& s) const;
  void Interrupt(Running& s, const InterruptReason& why);

  // Changes of state: references into the state that was left are not valid any more.
  void Seal(const SealReason& why);  // from Gathering and Draining
  void Drain(EndOfRound why);        // from Running
  void Gather(std::optional<TimePoint> pause_end);
  void Close(Dismissal outcome, EndOfJob why);

  // Tells the nodes of the last round what went wrong in it, if anything did.
  void ShareReport(const ActiveRound& round, const std::string& outcome);
  void ShareReport(JobReport report, const std::string& outcome);
  void TellWaitersWithin(Duration delay);
  void TellWaiters();
  void DismissNode(const NodeId& id, Dismissal reason, DismissReason why);

  const JobRules policy_;
  RoundState state_;
  std::optional<Round> last_round_;  // that was sealed
  int restarts_ = 0;
  Membership membership_;
  AbsentNodes absent_;
  FurthestStep furthest_;
  std::string last_failure_;

  HostFailures hosts_;
  LossStreak loss_row_;
  int electorate_ = 0;                   // nodes of the last round, without those that have left it in order
  bool last_was_lost_ = false;           // of the nodes that have gone, the last one
  std::optional<TimePoint> notice_end_;  // when the waiting nodes are told what they wait for

  // Of the Step that is going on.
  TimePoint now_;
  RoundEffects effects_;
};

}  // namespace ddprun
