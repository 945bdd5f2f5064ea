// An agent's connection to the coordinator of its job.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Contract of every link: messages arrive in order, once, as long as the link holds. It sends heartbeats by
// itself from on_open on, which is the time to join. The handlers are called from the io_context that the
// link was made with, never from inside a call; only on_open, on_message and on_lost are needed.
class CoordinatorLink {
 public:
  struct Handlers {
    // The connection is there: what is sent from now on is under way at once. What was sent before waits for
    // it.
    std::function<void()> on_open = {};
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    // The link is gone, not by Close(): kUnavailable with the cause. Called at most once, last.
    std::function<void(const absl::Status&)> on_lost;
    // Fills in the heartbeat that is sent right afterwards.
    std::function<void(proto::Heartbeat&)> heartbeat = {};
    // A heartbeat was answered: as it was `sent`, on the steady clock and after the call of `heartbeat` for
    // it, the coordinator still had to renew the lease. Never told by a link that has no lease.
    std::function<void(TimePoint sent)> on_answered = {};
    // How often heartbeats are sent until the coordinator's Welcome says how often; 0: none until then. On a
    // slow connection several are due before the welcome comes.
    Duration heartbeat_interval{};
  };

  virtual ~CoordinatorLink() = default;
  virtual void Start(Handlers handlers) = 0;  // once
  virtual void Send(const proto::AgentMessage& message) = 0;
  // Says what was sent before, then hangs up. No handler is called afterwards.
  virtual void Close() = 0;
};

}  // namespace ddprun
