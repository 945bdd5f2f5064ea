// An agent's connection to the coordinator of its job.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Contract of every implementation: messages arrive in order and at most once. The owner sends the join from
// on_open. After on_open, the link sends heartbeats without further calls by the owner. Handlers run on the
// io_context of the link, never from within a call to the link. on_message and on_lost are required.
class CoordinatorLink {
 public:
  struct Handlers {
    // The connection is established. The link queues messages that are sent earlier.
    std::function<void()> on_open = {};
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    // The link was lost before Close() was called. The status is kUnavailable and names the cause.
    // Invoked at most once; no handler is invoked afterwards.
    std::function<void(const absl::Status&)> on_lost;
    // Fills in a heartbeat just before the link sends it.
    std::function<void(proto::Heartbeat&)> heartbeat = {};
    // The coordinator answered a heartbeat. `sent` is a time on the steady clock, taken after `heartbeat`
    // returned and before the message was sent, so the coordinator renewed the lease at `sent` or later.
    // Never invoked for an agent without a lease.
    //   lead_left: how long the coordinator leads the job, counted from `sent`, unless its lead is renewed; nullopt: without an
    //              end.
    std::function<void(TimePoint sent, std::optional<Duration> lead_left)> on_answered = {};
    // Interval of the heartbeats that are sent before the Welcome arrives; 0 means none. The Welcome sets the
    // interval of later heartbeats. On a slow connection, several heartbeats may be due before the Welcome.
    // The link of the coordinator's own agent ignores the first one, and the other one if it is 0.
    Duration heartbeat_interval{};
  };

  virtual ~CoordinatorLink() = default;
  virtual void Start(Handlers handlers) = 0;  // called exactly once, before Send
  virtual void Send(const proto::AgentMessage& message) = 0;
  // Disconnects after the queued messages have been sent. Does not block. No handler is invoked after this
  // call.
  virtual void Close() = 0;
};

}  // namespace ddprun
