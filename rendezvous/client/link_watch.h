// When an agent's connection to its coordinator sends a heartbeat, and when it counts as lost.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Pure: equal calls give equal results. Every `now` is on one clock and never decreases.
//   Order: Started, Opened, then the others in any order.
class LinkWatch {
 public:
  // Within which an agent that joins for the first time expects the Welcome.
  static constexpr Duration kWelcomeLimit = seconds(20);
  // Heartbeats in a row that may stay unanswered. With four in a lease, a silence shorter than the lease never
  // ends the connection, and one of five quarters of a lease always does. An agent that stood still itself has
  // sent none and does not give up.
  static constexpr int kMaxUnanswered = 4;

  struct SendHeartbeat {};  // then call HeartbeatSent
  struct GiveUp {
    std::string why;  // for people
  };
  using Action = std::variant<std::monostate, SendHeartbeat, GiveUp>;

  // The connection is being made; the Welcome is to come within `welcome_limit`.
  void Started(TimePoint now, Duration welcome_limit);
  // The connection is there. A heartbeat is due every `interval` until the Welcome says how often; 0: none.
  void Opened(TimePoint now, Duration interval);
  // A message came. Returns when the heartbeat that it answers was sent; none: it answers none.
  std::optional<TimePoint> Received(const proto::CoordinatorMessage& message, TimePoint now);
  void HeartbeatSent(TimePoint now);

  // Due(now) at the latest then; none: nothing is pending.
  std::optional<TimePoint> NextDeadline() const;
  Action Due(TimePoint now);

  // Heartbeats since the last message.
  int unanswered() const { return unanswered_; }

 private:
  void BeatFrom(TimePoint now, Duration interval);

  Duration welcome_limit_{};
  std::optional<TimePoint> welcome_end_;
  Duration interval_{};
  std::optional<TimePoint> next_beat_;
  int unanswered_ = 0;
  std::deque<TimePoint> sent_;  // heartbeats that no Heard has answered; the oldest first
};

}  // namespace ddprun
