// The shell around the jobs' RoundMachines: carries messages of agents to them, their orders back, and owns
// the timer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/json/object.hpp"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun {

// An agent's connection, as the coordinator sees it. Calls come on the io_context's thread.
class AgentPeer {
 public:
  virtual ~AgentPeer() = default;
  virtual void Send(const proto::CoordinatorMessage& message) = 0;
  // No message follows. `why` is not OK when the peer broke the rules.
  virtual void End(const absl::Status& why) = 0;
  // Its address as seen from here.
  virtual std::string address() const = 0;
  // True for the agent of this very process: it needs no lease.
  virtual bool in_process() const = 0;
};

//   Threads: that of `io`.
class Coordinator {
 public:
  // Told of every transition: "round_sealed", run id, reason.
  using Log =
      std::function<void(absl::string_view event, absl::string_view run_id, absl::string_view reason)>;
  using PeerId = uint64_t;

  Coordinator(boost::asio::io_context& io, Log log);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // A new connection; it shall send a join first. `peer` must live until Detach.
  PeerId Attach(AgentPeer* peer);
  void Receive(PeerId peer, const proto::AgentMessage& message);
  // The connection is gone, whoever ended it. A node that was not dismissed before is lost.
  void Detach(PeerId peer, absl::string_view reason);

  // Ends all jobs, for whatever reason this process has to go.
  void CloseAll(const std::string& reason);
  int num_peers() const { return static_cast<int>(peers_.size()); }
  // Called whenever a peer is gone.
  void set_on_detach(std::function<void()> f) { on_detach_ = std::move(f); }
  // For people and scripts: docs/protocol.md, "HTTP".
  boost::json::object Status() const;

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
    TimePoint since;  // of the last transition
    std::string last_note;
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  absl::Status Join(PeerId id, Peer& peer, const proto::Join& join);
  void Step(const std::string& run_id, Job& job, const RoundEvent& event);
  void DismissPeer(PeerId id, Peer& peer, const absl::Status& why);
  void SetTimer();

  const Log log_;
  std::map<PeerId, Peer> peers_;
  std::map<std::string, Job> jobs_;
  PeerId next_peer_ = 1;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> timer_at_;
  std::function<void()> on_detach_;
};

}  // namespace ddprun
