// Invariants of notices of pre-emption, checked after each step of a RoundMachine. A part of RoundRules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun::sim {

// - A round with a notice ends at the latest when the node must stop its workers: a third of the notice before its end, or
//   stop_timeout, if that is shorter. It does not end before, unless all its workers have stopped, 5 s have passed since a
//   snapshot, or for another reason, such as a failure.
// - A node with workers that gets a notice is told how much time is left.
// - A node with a notice gets no further round. If it hosts the coordinator, no node does.
// - Only nodes with a notice are dismissed as pre-empted, or all, if one of them hosts the coordinator.
// - A failure in a round with a notice costs nothing, whether it came before or after the notice.
// - A job does not succeed in such a round unless all workers say that all steps are done.
// - If a node returns, no join times out until it is due and the join timeout has passed.
class NoticeRules {
 public:
  using Broken = std::function<void(const std::string& rule)>;
  // What RoundRules knows of a node before a step.
  struct Before {
    bool member = false;        // and not lost
    bool in_round = false;      // of a round that runs or drains
    bool has_workers = false;   // the node has not reported that they have exited
    bool round_active = false;  // a round runs or drains
  };

  NoticeRules(Duration join_timeout, Broken broken);

  // Events, before the other calls for a step.
  void Joined(const NodeInfo& info);
  void Given(const NoticeGiven& e, const Before& before, TimePoint now);
  void Succeeded(bool finished) {
    unfinished_ = unfinished_ || !finished;
  }  // all workers of a node of the round
  void SnapshotTaken(TimePoint now);

  bool IsNoticed(const NodeId& id) const { return noticed_.count(id) > 0; }
  bool round_has_notice() const { return round_has_notice_; }
  bool asked_to_stop() const { return asked_; }

  // The round still runs after a step.
  void CheckRunning(const RoundMachine& machine, TimePoint now);
  // The round was ended in this step, and nothing else was a reason.
  //   all_stopped: all workers have exited.
  void CheckEnded(bool all_stopped, TimePoint now);
  void CheckEffects(const RoundEffects& effects, const RoundMachine& machine);
  void CheckDismissal(const Dismiss& dismiss, TimePoint now);
  void CheckSealed(const NodeId& node);
  // After the effects of a step, before Sealed: forgets the nodes that are not members any more, or are lost.
  void Forget(const Membership& membership);
  void Sealed();

  int64_t given() const { return given_; }
  int64_t preempted() const { return preempted_; }

 private:
  struct Notice {
    TimePoint stop_at;
    TimePoint end;
    std::optional<TimePoint> back_at = {};
  };
  // When the first member with a notice must stop its workers.
  std::optional<TimePoint> StopAt(const Membership& membership) const;

  const Duration join_timeout_;
  const Broken broken_;
  std::map<NodeId, Duration> stop_timeouts_;
  std::set<NodeId> hosting_;
  std::map<NodeId, Notice> noticed_;  // members
  bool host_noticed_ = false;         // the node that hosts the coordinator has had a notice
  std::optional<TimePoint> back_at_;  // when the last of the nodes that return is due
  std::optional<NodeId> to_be_told_;  // in this step
  // State of the last round.
  bool round_has_notice_ = false;
  bool asked_ = false;                // its workers were asked to stop
  std::optional<TimePoint> stop_by_;  // by this time
  bool unfinished_ = false;
  std::optional<TimePoint> snapshot_at_;  // the first one since

  int64_t given_ = 0;
  int64_t preempted_ = 0;
};

}  // namespace ddprun::sim
