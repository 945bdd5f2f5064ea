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
// costs (verdict.h), everybody is told why (job_report.h), and the next round is sealed or the job closed. A
// node that was lost with its workers is waited for until its lease ends, when its fence has killed them, or
// until NodeGone.
//
// Time reaches the machine only as the `now` of Step, and its order of events is its whole input: two
// machines that are given the same log are in the same state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/dismissal.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/absent_nodes.h"
#include "rendezvous/core/host_record.h"
#include "rendezvous/core/job_report.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/verdict.h"

namespace ddprun {

// Pure: equal (state, event, now) give equal effects.
class RoundMachine {
 public:
  enum class State { kGathering, kRunning, kDraining, kClosed };

  explicit RoundMachine(JobRules policy);

  [[nodiscard]] RoundEffects Step(const RoundEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Step(Tick{}) at the latest then; none = nothing pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return state_; }
  // The round that is running or draining; in Gathering the last one, -1 before the first.
  Round round() const { return round_; }
  int restarts() const { return restarts_; }
  const Membership& membership() const { return membership_; }
  const JobRules& policy() const { return policy_; }
  // The first cause of the last round that failed, or empty.
  const std::string& last_failure() const { return last_failure_; }
  // None: no worker has reported one.
  std::optional<int64_t> furthest_step() const { return furthest_.step(); }
  // Closed only: how the job ended, and why, for people.
  Dismissal outcome() const { return outcome_; }
  const std::string& outcome_reason() const { return outcome_reason_; }

  // Who should be here and is not. Takes O(nodes).
  std::vector<AbsentNode> Absent() const { return absent_.List(); }
  // Its last nodes were lost, not one after the other let go: they may come back and go on.
  bool deserted() const {
    return state_ == State::kGathering && round_ >= Round(0) && membership_.size() == 0 && last_was_lost_;
  }
  // What nodes that wait would be told now.
  std::string WaitingText(TimePoint now) const;

 private:
  // A snapshot was asked for before the round is ended.
  struct Asked {
    std::string reason;
    TimePoint end;  // it is ended without one then
  };

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
  const Member* Speaker(const NodeId& id, Round round);
  void Reported(int64_t step);
  // Removes a member without workers; ends the round if it was part of it. `why` is for those who wait for
  // it: "its lease expired".
  void Remove(const NodeId& id, absl::string_view event, absl::string_view why, const std::string& reason);
  // The same for a member whose workers may run: it stays, as kLost, until they are known to be dead.
  void Lose(const NodeId& id, absl::string_view event, absl::string_view why, const std::string& reason);
  // What Remove and Lose have in common.
  void Missed(const Member& member, absl::string_view event, absl::string_view why,
              const std::string& reason);
  // A failure, or a loss, began there.
  void Blame(const std::string& host);
  // What the next round needs: min_nodes, and the quorum.
  int MinNodes() const;
  // Takes a member out because somebody wants that.
  void LetGo(const NodeId& id);
  void ExpireLeases();
  void ExpireJoins();
  void ExpireDrain();

  // Moves on from the present state as far as its members allow.
  void Advance();
  void AdvanceGathering();
  void AdvanceRunning();
  void AdvanceDraining();
  // Why the running round should be ended though nothing is wrong with it; empty: it should not.
  std::string WhyInterrupt();
  void Interrupt(const std::string& reason);
  void Seal(const std::string& reason);
  void Drain(const std::string& reason);
  void Gather();
  void Close(Dismissal outcome, std::string reason);

  // Tells the nodes of the round what went wrong in it, if anything did.
  void ShareReport(JobReport report, const std::string& outcome);
  void TellWaitersWithin(Duration delay);
  void TellWaiters();
  void DismissNode(const NodeId& id, Dismissal reason, std::string message);
  void NoteIt(absl::string_view event, std::string reason);

  const JobRules policy_;
  State state_ = State::kGathering;
  Round round_{-1};
  int restarts_ = 0;
  Membership membership_;
  AbsentNodes absent_;
  FurthestStep furthest_;
  std::string last_failure_;

  // Of the round that is running or draining.
  bool failed_ = false;         // it ended by a failure
  bool finishing_ = false;      // workers of a node have ended with 0
  bool step_reported_ = false;  // by any worker
  RoundLosses losses_;
  int unplanned_losses_ = 0;               // nodes that were lost, and did not leave
  std::string end_reason_;                 // Draining only
  std::optional<CloseRequested> closing_;  // Draining only: the job ends with the round

  HostRecord hosts_;
  LossRow loss_row_;
  int electorate_ = 0;  // nodes of the last round, without those that have left it in order
  TimePoint sealed_at_;
  std::optional<TimePoint> pause_end_;  // Gathering: no round is sealed before
  bool last_was_lost_ = false;          // of the nodes that have gone, the last one

  std::optional<TimePoint> last_call_end_;     // Gathering: with min_nodes; Running: with newcomers to let in
  std::optional<Asked> asked_;                 // Running only
  std::optional<TimePoint> drain_end_;         // Draining only
  TimePoint gathering_since_;                  // Gathering only
  std::optional<TimePoint> notice_end_;        // when the waiting nodes are told what they wait for
  Dismissal outcome_ = Dismissal::kSucceeded;  // Closed only
  std::string outcome_reason_;

  // Of the Step that is going on.
  TimePoint now_;
  RoundEffects effects_;
};

}  // namespace ddprun
