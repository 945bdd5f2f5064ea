// How long the workers of a node have made no progress, in levels. The agent measures, the coordinator decides.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace ddprun {

// Of a worker, by the ratio of its idle time and its limit; of a node, the lowest level of its workers that count.
enum class StandstillLevel {
  kMoving,
  kSuspect,  // the coordinator asks for evidence when all nodes have this level
  kStill,    // the users are told
  kHung,     // the round may be ended
};

// --hang-timeout: how long a round may make no progress.
class HangTimeout {
 public:
  static constexpr HangTimeout Auto() {
    return HangTimeout(milliseconds(-1));
  }  // learnt from the reports of the workers
  static constexpr HangTimeout Off() { return HangTimeout(Duration::zero()); }
  static constexpr HangTimeout Of(Duration time) { return HangTimeout(time); }  // REQUIRES: time > 0

  // REQUIRES: neither Auto() nor Off().
  constexpr Duration given() const { return value_; }
  // The value in messages: -1: Auto(); 0: Off().
  int64_t millis() const { return ToMillis(value_); }
  static HangTimeout FromMillis(int64_t millis) { return HangTimeout(milliseconds(millis)); }

  bool operator==(const HangTimeout&) const = default;

 private:
  explicit constexpr HangTimeout(Duration value) : value_(value) {}
  Duration value_;
};

// --on-hang: what follows when a round is hung.
enum class OnHang {
  kReport,   // the users are told, as they were before
  kRestart,  // it ends as after a failure
};

struct NodeStandstill {
  StandstillLevel level = StandstillLevel::kMoving;
  // A worker of the node has reported progress in this round. If not, the level is that of signs from outside, and does not count
  // beside nodes whose workers report.
  bool reports = false;
  // No worker that counts is left, because all have ended. The level does not count.
  bool ended = false;
  Duration idle = {};  // time since the last progress of any worker that counts; meaningful from kSuspect on

  bool operator==(const NodeStandstill&) const = default;
};

}  // namespace ddprun
