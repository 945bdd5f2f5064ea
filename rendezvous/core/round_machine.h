// Rounds of one job: who is in, when a round is sealed, when it ends and what a failure costs.
//
//                 max joined, or min joined and last call over
//   +-----------+ ---------------------------------------------> +---------+  all succeeded     +--------+
//   | Gathering |                                                | Running | -----------------> |        |
//   +-----------+ <---+   too few left                           +---------+  no restart left   | Closed |
//                     |                 seal at once  ^   |                                     |        |
//                 +----------+ -----------------------+   | worker failed, member gone,         +--------+
//                 | Draining | <--------------------------+ newcomers due                           ^
//                 +----------+                                         close requested, in any state --+
//
// Time reaches the machine only as the `now` of Step, and its order of events is its whole input: two
// machines that are given the same log are in the same state.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// The rules of a job, fixed when its first node joins.
//   REQUIRES: 1 <= min_nodes <= max_nodes; max_restarts >= 0; all durations >= 0, lease > 0.
struct RoundPolicy {
  int min_nodes = 1;
  int max_nodes = 1;
  // Failures that may be answered by a new round. Membership changes are free.
  int max_restarts = 0;
  // How long the first round waits for more nodes once it has min_nodes.
  Duration first_last_call = seconds(30);
  // The same for later rounds, and how long newcomers to a running job are collected before it is interrupted
  // for them.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message.
  Duration lease = seconds(5);
  // How long the members may take to stop their workers; longer than the agents' own grace period.
  Duration drain_timeout = seconds(60);

  bool operator==(const RoundPolicy&) const = default;
};

// Pure: equal (state, event, now) give equal effects.
class RoundMachine {
 public:
  enum class State { kGathering, kRunning, kDraining, kClosed };

  explicit RoundMachine(RoundPolicy policy);

  [[nodiscard]] RoundEffects Step(const RoundEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Step(Tick{}) at the latest then; none = nothing pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return state_; }
  // The round that is running or draining; in Gathering the last one, -1 before the first.
  Round round() const { return round_; }
  int restarts() const { return restarts_; }
  const Membership& membership() const { return membership_; }
  const RoundPolicy& policy() const { return policy_; }
  const std::string& last_failure() const { return last_failure_; }

 private:
  void On(const NodeJoined& e);
  void On(const NodeHeard& e);
  void On(const WorkersFailed& e);
  void On(const WorkersSucceeded& e);
  void On(const NodeReady& e);
  void On(const NodeLeft& e);
  void On(const NodeLost& e);
  void On(const CloseRequested& e);
  void On(const Tick&) {}

  // The member, if it is one and `round` is the one it is in; else says so with Refuse.
  const Member* Speaker(const NodeId& id, Round round);
  // Takes a member out, for whatever reason; ends the round if it was part of it.
  void Drop(const NodeId& id, absl::string_view event, const std::string& reason);
  void ExpireLeases();
  void ExpireJoins();
  void ExpireDrain();
  // Moves on from the present state as far as its members allow.
  void Advance();
  void AdvanceGathering();
  void AdvanceRunning();
  void AdvanceDraining();
  void Seal(const std::string& reason);
  void Drain(const std::string& reason);
  void Close(const absl::Status& outcome);
  void TellWaiters();
  std::string WaitingText() const;
  void NoteIt(absl::string_view event, const std::string& reason);

  const RoundPolicy policy_;
  State state_ = State::kGathering;
  Round round_{-1};
  int restarts_ = 0;
  Membership membership_;
  std::optional<TimePoint> last_call_end_;  // Gathering: with min_nodes; Running: with newcomers to let in
  std::optional<TimePoint> drain_end_;      // Draining only
  std::optional<TimePoint> notice_end_;     // when the waiting nodes are told what they wait for
  absl::Status outcome_;                    // Closed only
  std::string last_failure_;                // cause of the last charged restart

  // Of the Step that is going on.
  TimePoint now_;
  RoundEffects effects_;
};

}  // namespace ddprun
