// The shell around the jobs' RoundMachines: carries messages of agents to them, their orders back, and owns
// the timer.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dismissal.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/json/object.hpp"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/round_machine.h"
#include "rendezvous/server/event_ring.h"

namespace ddprun {

// Shared, since all nodes may be told the same, and slow ones hear it late.
using SharedMessage = std::shared_ptr<const proto::CoordinatorMessage>;

// An agent's connection, as the coordinator sees it. Calls come on the io_context's thread.
class AgentPeer {
 public:
  virtual ~AgentPeer() = default;
  virtual void Send(SharedMessage message) = 0;
  // No message follows. `why` is not OK when the peer broke the rules.
  virtual void End(const absl::Status& why) = 0;
  // Its address as seen from here.
  virtual std::string address() const = 0;
  // True for the agent of this very process: it needs no lease.
  virtual bool in_process() const = 0;
};

struct CoordinatorLimits {
  // How long a connection may take to send its join.
  Duration join = seconds(10);
  // Closed jobs that are remembered, so that a straggler is told so and does not start them over.
  size_t closed_jobs = 100;
  // Of each of them, the last events.
  size_t events_of_closed = 100;
};

// A job is kept as long as it has nodes. When the last one has gone it is forgotten, its budget and its rules
// with it, so that it can be started anew; only of closed ones some are remembered.
//   Threads: that of `io`.
class Coordinator {
 public:
  // Told of every transition: "round_sealed", run id, reason.
  using Log =
      std::function<void(absl::string_view event, absl::string_view run_id, absl::string_view reason)>;
  using PeerId = uint64_t;

  Coordinator(boost::asio::io_context& io, Log log, CoordinatorLimits limits = {});
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // For handlers that may run when the coordinator is gone: expired then. May be called and copied anywhere,
  // to be locked on the thread of `io` only.
  std::weak_ptr<Coordinator> weak() { return self_; }

  // A new connection; it shall send a join first. `peer` must live until Detach.
  PeerId Attach(AgentPeer* peer);
  void Receive(PeerId peer, const proto::AgentMessage& message);
  // The connection is gone, whoever ended it. A node that was not dismissed before is lost.
  void Detach(PeerId peer, absl::string_view reason);

  // Ends all jobs and whoever has not joined one, for whatever reason this process has to go. Who comes later
  // is told the same.
  void CloseAll(const std::string& reason);
  int num_peers() const { return static_cast<int>(peers_.size()); }
  // Called whenever a peer is gone.
  void set_on_detach(std::function<void()> f) { on_detach_ = std::move(f); }
  // For people and scripts: docs/protocol.md, "HTTP".
  boost::json::object Status() const;
  // What happened after the event with the number `after`, a line each.
  //   Errors of this and what follows: kNotFound: no such job; kInvalidArgument: `run_id` is empty, and there
  //   is not exactly one job. Each names those that there are.
  absl::StatusOr<std::string> Events(const std::string& run_id, uint64_t after);

  // Takes a node out, by its id or its host. Returns, for people, what happens now.
  //   Errors: kNotFound: no such node; kInvalidArgument: the host has several; kFailedPrecondition: the job
  //   is closed, or the node hosts the coordinator.
  absl::StatusOr<std::string> Drain(const std::string& run_id, const std::string& node,
                                    const std::string& reason);
  // Ends a job.
  //   Errors: kFailedPrecondition: it is closed.
  absl::StatusOr<std::string> Stop(const std::string& run_id, const std::string& reason);

 private:
  struct Peer {
    AgentPeer* peer = nullptr;
    std::string run_id;  // empty before the join
    NodeId node;
  };
  struct Job {
    explicit Job(const RoundPolicy& policy) : machine(policy) {}
    RoundMachine machine;
    std::map<NodeId, PeerId> nodes;
    EventRing events;
    bool retired = false;  // in closed_jobs_
  };

  using JobEntry = std::pair<const std::string, Job>;

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  absl::Status Join(PeerId id, Peer& peer, const proto::Join& join);
  void Step(const std::string& run_id, Job& job, const RoundEvent& event);
  void Deliver(Job& job, const NodeId& node, SharedMessage message, bool last);
  absl::StatusOr<JobEntry*> FindJob(const std::string& run_id);
  absl::StatusOr<JobEntry*> FindOpenJob(const std::string& run_id);
  void DismissPeer(Peer& peer, Dismissal reason, absl::string_view why);
  // Dismisses the connections that should have joined by `now`.
  void ExpireStrangers(TimePoint now);
  // Forgets the job if there is nothing to remember; `run_id` may be of none.
  void MaybeForget(const std::string& run_id);
  void SetTimer();
  void OnTimer();

  // Owns nothing.
  const std::shared_ptr<Coordinator> self_{this, [](Coordinator*) {}};
  const Log log_;
  const CoordinatorLimits limits_;
  std::map<PeerId, Peer> peers_;
  std::map<PeerId, TimePoint> strangers_;  // when they must have joined: the first one first
  std::map<std::string, Job> jobs_;
  std::deque<std::string> closed_jobs_;  // without nodes, the oldest first
  std::string closing_;                  // why; empty: not closing
  PeerId next_peer_ = 1;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> timer_at_;
  std::function<void()> on_detach_;
};

}  // namespace ddprun
