// All rules of a coordinator: which connection belongs to which node and job, which agents are admitted, when
// a job is forgotten, and how the coordinator shuts down. RoundMachine runs the rounds of each job.
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
  // Time limit for the join on a new connection.
  Duration join = seconds(10);
  // Number of closed jobs to remember, so that a late agent is dismissed and does not start the job again.
  size_t closed_jobs = 100;
  // Number of recent events that Coordinator keeps for each closed job.
  size_t events_of_closed = 100;
  // Whether the coordinator has jobs only by LeadBegun. Such a job is never forgotten. If this process ends first, it hands
  // the job over.
  bool registered = false;
};

// Pure: equal state, event and now give equal effects. The only input is the sequence of events with their
// times.
//
// A job is kept as long as it has nodes. When the last node leaves, the job is forgotten together with its
// count of restarts and its rules, so that it can be started again. If the last nodes were lost instead, for
// example because a switch failed, the job is kept for its join timeout. Nodes that return within that time
// join the next round, and the restarts already charged still count. The last
// `CoordinatorLimits::closed_jobs` closed jobs are remembered.
class CoordinatorMachine {
 public:
  struct Job {
    explicit Job(RoundMachine m) : machine(std::move(m)) {}
    RoundMachine machine;
    std::map<NodeId, PeerId> nodes;           // nodes that can receive orders, with their connections
    bool retired = false;                     // true if the job is in closed_jobs_
    std::optional<TimePoint> forget_at = {};  // when to forget the job; set while it is deserted
  };
  // Called after each step of a job's machine.
  using StepObserver = std::function<void(const RoundEvent&, const RoundEffects&, const RoundMachine&)>;

  explicit CoordinatorMachine(CoordinatorLimits limits = {});

  [[nodiscard]] CoordinatorEffects Step(const CoordinatorEvent& event,
                                        TimePoint now);  // REQUIRES: now never decreases
  // Returns the latest time for the next Step(CoordinatorTick{}), or nullopt if nothing is pending.
  std::optional<TimePoint> NextDeadline() const;

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  // Returns the id of the job. If `run_id` is empty, the job is the only open job, or the only job if none is
  // open.
  //   Errors: kNotFound: no such job; kInvalidArgument: `run_id` is empty and ambiguous.
  //           Each error lists the known jobs.
  absl::StatusOr<std::string> FindJob(const std::string& run_id) const;
  // Reports for jobs that this process does not lead.
  const std::deque<GoneReported>& early_gone() const { return early_gone_; }
  // Number of open connections.
  int num_peers() const { return static_cast<int>(peers_.size()); }
  void ObserveForTest(StepObserver observer) { observer_ = std::move(observer); }

 private:
  struct Peer {
    std::string address;
    bool in_process = false;
    std::string run_id = {};  // empty before the join
    NodeId node = {};         // empty before the join, and after the node left or was dismissed
  };

  void On(const PeerConnected& e);
  void On(const PeerJoined& e);
  void On(const PeerSaid& e);
  void On(const PeerMisspoke& e);
  void On(const PeerDisconnected& e);
  void On(const GoneReported& e);
  void On(const DrainNode& e);
  void On(const PreemptNode& e);
  void On(const StopJob& e);
  void On(const CoordinatorEnding& e);
  void On(const LeadBegun& e);
  void On(const LeadLapsed& e);
  void On(const CoordinatorTick& e);

  absl::Status Join(Peer& peer, const PeerJoined& e);
  absl::Status ReportGone(const std::string& run_id, const NodeId& node, const std::string& token);
  absl::StatusOr<std::string> Drain(const DrainNode& e);
  absl::StatusOr<std::string> Preempt(const PreemptNode& e);
  absl::StatusOr<std::string> Stop(const StopJob& e);
  absl::StatusOr<std::string> FindOpenJob(const std::string& run_id) const;

  // Handles a message from the agent in the coordinator's own process. If that agent leaves, ends all jobs, unless they go
  // on under another coordinator.
  void HeedHost(const NodeMessage& message);
  void StepJob(const std::string& run_id, const RoundEvent& event);
  // Hands the job of LeadBegun over, if it is open.
  void HandOver(const std::string& why);
  void Pass(const std::string& run_id, Job& job, RoundEffects effects);
  // If `last`, this is the last order to the node: its connection is closed afterwards.
  void Send(Job& job, const NodeId& node, RoundEffect order, bool last);
  void DismissPeer(PeerId id, Dismissal reason, DismissReason why);
  void ExpireUnjoined();
  // Forgets or retires the job if its state requires that. Does nothing if there is no such job.
  void MaybeForget(const std::string& run_id);
  void Forget(std::map<std::string, Job>::iterator job, note::JobForgotten::Why why);

  const CoordinatorLimits limits_;
  std::map<PeerId, Peer> peers_;
  std::map<PeerId, TimePoint> unjoined_;  // join deadlines; they increase with the PeerId
  std::map<std::string, Job> jobs_;
  std::deque<std::string> closed_jobs_;  // oldest first
  std::optional<CloseReason> ending_;    // set when the coordinator begins to shut down
  std::optional<std::string> led_;       // the job of LeadBegun
  std::deque<GoneReported> early_gone_;  // reports for jobs that this process does not lead yet, oldest first
  StepObserver observer_;

  // State of the current Step.
  TimePoint now_;
  CoordinatorEffects effects_;
};

}  // namespace ddprun
