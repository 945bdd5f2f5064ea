// An agent's connection to the coordinator of its job.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Contract of every link: messages arrive in order and at most once. The link sends heartbeats by itself
// after on_open; send the join in on_open. Handlers run on the io_context of the link, never from within a
// call. on_message and on_lost are required.
class CoordinatorLink {
 public:
  struct Handlers {
    // The connection is established. Messages sent before on_open were queued; later ones are sent at once.
    std::function<void()> on_open = {};
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    // The link was lost, not closed by Close(): kUnavailable with the cause. The last callback, at most once.
    std::function<void(const absl::Status&)> on_lost;
    // Fills in a heartbeat, which is sent right afterwards.
    std::function<void(proto::Heartbeat&)> heartbeat = {};
    // The coordinator answered the heartbeat sent at `sent` (steady clock, taken after `heartbeat` returned),
    // so it renewed the lease no earlier than at `sent`. Never invoked by a link without a lease.
    std::function<void(TimePoint sent)> on_answered = {};
    // Heartbeat interval until the Welcome sets it; 0: no heartbeats before the Welcome. On a slow
    // connection, several heartbeats are due before the Welcome arrives.
    Duration heartbeat_interval{};
  };

  virtual ~CoordinatorLink() = default;
  virtual void Start(Handlers handlers) = 0;  // once
  virtual void Send(const proto::AgentMessage& message) = 0;
  // Sends queued messages, then disconnects. No handler is invoked afterwards.
  virtual void Close() = 0;
};

}  // namespace ddprun
