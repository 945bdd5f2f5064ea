// Decides when an agent's connection to its coordinator needs a heartbeat and when the connection is lost.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "base/time.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Pure: the results depend only on the sequence of calls. All times are from one clock, and `now` never
// decreases.
//   Order: Started, then Opened, then Received and HeartbeatSent in any order. NextDeadline and Due may be
//          called at any time after Started.
class LinkWatch {
 public:
  // Time limit for the Welcome when an agent joins for the first time.
  static constexpr Duration kWelcomeLimit = seconds(20);
  // Maximum number of consecutive unanswered heartbeats. The heartbeat interval is a quarter of the lease.
  // The connection therefore never counts as lost while the coordinator has been silent for less than the
  // lease, and always counts as lost after a silence of 5/4 of the lease. A suspended agent sends no
  // heartbeats, so a suspension alone does not make the connection count as lost.
  static constexpr int kMaxUnanswered = 4;

  struct SendHeartbeat {};  // the caller sends a heartbeat, then calls HeartbeatSent
  struct GiveUp {
    std::string why;  // human-readable
  };
  using Action = std::variant<std::monostate, SendHeartbeat, GiveUp>;

  // The connection is being established. The Welcome must arrive within `welcome_limit`.
  void Started(TimePoint now, Duration welcome_limit);
  // The connection is established. Heartbeats are due every `interval` until the Welcome sets another
  // interval. 0 means no heartbeats.
  void Opened(TimePoint now, Duration interval);
  // The answer to a heartbeat; the arguments of CoordinatorLink::Handlers::on_answered.
  struct Answer {
    TimePoint sent;
    std::optional<Duration> lead_left = {};

    bool operator==(const Answer&) const = default;
  };
  // A message arrived. Returns nullopt if it does not answer a heartbeat.
  std::optional<Answer> Received(const proto::CoordinatorMessage& message, TimePoint now);
  void HeartbeatSent(TimePoint now);

  // Returns the latest time for the next call of Due, or nullopt if nothing is pending.
  std::optional<TimePoint> NextDeadline() const;
  // Returns what the caller must do at `now`, or std::monostate if no action is due.
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
  std::deque<TimePoint> sent_;  // send times of the heartbeats that no Heard has answered; oldest first
};

}  // namespace ddprun
