// An agent's connection to the coordinator of its job.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Contract of every link: messages arrive in order and at most once. The link sends heartbeats on its own
// after on_open; join in on_open. Handlers run on the io_context of the link, never from within a call.
// on_message and on_lost are required.
class CoordinatorLink {
 public:
  struct Handlers {
    // The connection is established. Messages sent before it were queued; later ones are sent at once.
    std::function<void()> on_open = {};
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    // The link was lost, not by Close(): kUnavailable with the cause. The last callback, at most once.
    std::function<void(const absl::Status&)> on_lost;
    // Fills in a heartbeat, which is sent right afterwards.
    std::function<void(proto::Heartbeat&)> heartbeat = {};
    // The coordinator answered the heartbeat sent at `sent` (steady clock, taken after `heartbeat` returned),
    // so it renewed the lease no earlier than that. Never invoked by a link without a lease.
    std::function<void(TimePoint sent)> on_answered = {};
    // Interval of heartbeats before the Welcome, which sets the interval; 0: none before it. On a slow
    // connection several are due before the Welcome arrives.
    Duration heartbeat_interval{};
  };

  virtual ~CoordinatorLink() = default;
  virtual void Start(Handlers handlers) = 0;  // once
  virtual void Send(const proto::AgentMessage& message) = 0;
  // Sends queued messages, then disconnects. No handler is invoked afterwards.
  virtual void Close() = 0;
};

}  // namespace ddprun
