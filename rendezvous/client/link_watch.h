// Decides when an agent's connection to its coordinator needs a heartbeat and when the connection is lost.
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
  // Time limit for the Welcome to an agent that joins for the first time.
  static constexpr Duration kWelcomeLimit = seconds(20);
  // Consecutive heartbeats that may stay unanswered. With four heartbeats per lease, a silence shorter
  // than the lease never ends the connection, and a silence of 5/4 of the lease always does. An agent that
  // was suspended has sent no heartbeats in that time and keeps the connection.
  static constexpr int kMaxUnanswered = 4;

  struct SendHeartbeat {};  // then call HeartbeatSent
  struct GiveUp {
    std::string why;  // for people
  };
  using Action = std::variant<std::monostate, SendHeartbeat, GiveUp>;

  // The connection is being established. The Welcome must arrive within `welcome_limit`.
  void Started(TimePoint now, Duration welcome_limit);
  // The connection is established. Heartbeats are due every `interval` until the Welcome changes it; 0: none.
  void Opened(TimePoint now, Duration interval);
  // A message arrived. Returns when the heartbeat that it answers was sent; nullopt: it answers no heartbeat.
  std::optional<TimePoint> Received(const proto::CoordinatorMessage& message, TimePoint now);
  void HeartbeatSent(TimePoint now);

  // Call Due(now) no later than this; nullopt: nothing is pending.
  std::optional<TimePoint> NextDeadline() const;
  Action Due(TimePoint now);

  // Number of heartbeats sent since the last message arrived.
  int unanswered() const { return unanswered_; }

 private:
  void BeatFrom(TimePoint now, Duration interval);

  Duration welcome_limit_{};
  std::optional<TimePoint> welcome_end_;
  Duration interval_{};
  std::optional<TimePoint> next_beat_;
  int unanswered_ = 0;
  std::deque<TimePoint> sent_;  // times of heartbeats without a Heard so far; oldest first
};

}  // namespace ddprun
