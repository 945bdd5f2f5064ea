// All rules of a coordinator: which connection is which node of which job, who is welcomed, when a job is
// forgotten, and how everything ends. The rounds of each job are RoundMachine's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/dismissal.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/core/coordinator_events.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun {

struct CoordinatorLimits {
  // How long a connection may take to send its join.
  Duration join = seconds(10);
  // Closed jobs that are remembered, so that a late agent is told so and does not start them over.
  size_t closed_jobs = 100;
  // Of each of them, the last events that the shell keeps.
  size_t events_of_closed = 100;
};

// Pure: equal (state, event, now) give equal effects. Its log of events, with their times, is its whole
// input.
//
// A job is kept as long as it has nodes. When the last one has left it is forgotten, its budget and its rules
// with it, so that it can be started again. When the last ones were lost it is kept for its join timeout:
// they come back when a switch does, to the next round and what is left of the budget. Of closed jobs the
// last ones are remembered.
class CoordinatorMachine {
 public:
  struct Job {
    explicit Job(const JobRules& policy) : machine(policy) {}
    RoundMachine machine;
    std::map<NodeId, PeerId> nodes;           // that may be sent orders
    bool retired = false;                     // in closed_jobs_
    std::optional<TimePoint> forget_at = {};  // deserted: forgotten then, if no node has come back
  };
  // Called after each step of a job's machine.
  using StepObserver = std::function<void(const RoundEvent&, const RoundEffects&, const RoundMachine&)>;

  explicit CoordinatorMachine(CoordinatorLimits limits = {});

  [[nodiscard]] CoordinatorEffects Step(const CoordinatorEvent& event,
                                        TimePoint now);  // REQUIRES: now never decreases
  // Step(CoordinatorTick{}) at the latest then; none: nothing is pending.
  std::optional<TimePoint> NextDeadline() const;

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  // The job that `run_id` names; an empty one names the only job there is.
  //   Errors: kNotFound: no such job; kInvalidArgument: `run_id` is empty, and there is not exactly one job.
  //   Each names those that there are.
  absl::StatusOr<std::string> FindJob(const std::string& run_id) const;
  // Connections that are not closed yet.
  int num_peers() const { return static_cast<int>(peers_.size()); }
  void ObserveForTest(StepObserver observer) { observer_ = std::move(observer); }

 private:
  struct Peer {
    std::string address;
    bool in_process = false;
    std::string run_id = {};  // empty before the join
    NodeId node = {};         // empty: not in a job, or not any more
  };

  void On(const PeerConnected& e);
  void On(const PeerJoined& e);
  void On(const PeerSaid& e);
  void On(const PeerMisspoke& e);
  void On(const PeerDisconnected& e);
  void On(const GoneReported& e);
  void On(const DrainNode& e);
  void On(const StopJob& e);
  void On(const CoordinatorEnding& e);
  void On(const CoordinatorTick& e);

  absl::Status Join(Peer& peer, const PeerJoined& e);
  absl::Status ReportGone(const std::string& run_id, const NodeId& node, const std::string& token);
  absl::StatusOr<std::string> Drain(const DrainNode& e);
  absl::StatusOr<std::string> Stop(const StopJob& e);
  absl::StatusOr<std::string> FindOpenJob(const std::string& run_id) const;

  // The coordinator ends with the agent of its own process.
  void HeedHost(const NodeMessage& message);
  void StepJob(const std::string& run_id, const RoundEvent& event);
  // `last`: the peer leaves its job with it.
  void Send(Job& job, const NodeId& node, RoundEffect order, bool last);
  void DismissPeer(PeerId id, Dismissal reason, DismissReason why);
  void ExpireUnjoined();
  // Forgets the job if nothing is to be remembered; `run_id` may be of none.
  void MaybeForget(const std::string& run_id);
  void Forget(std::map<std::string, Job>::iterator job, note::JobForgotten::Why why);

  const CoordinatorLimits limits_;
  std::map<PeerId, Peer> peers_;
  std::map<PeerId, TimePoint> unjoined_;  // when they must have joined; the first one first
  std::map<std::string, Job> jobs_;
  std::deque<std::string> closed_jobs_;  // the oldest first
  std::optional<CloseReason> ending_;    // none: the coordinator goes on
  StepObserver observer_;

  // Of the Step that is going on.
  TimePoint now_;
  CoordinatorEffects effects_;
};

}  // namespace ddprun
