// The last events of a job, in order, with their reasons.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

class EventRing {
 public:
  struct Event {
    uint64_t seq = 0;  // 1, 2, 3, ...
    TimePoint at;
    std::chrono::system_clock::time_point wall;  // for people; jumps when the clock is set
    std::string event;
    std::string reason;
  };

  void Add(absl::string_view event, absl::string_view reason, TimePoint now,
           std::chrono::system_clock::time_point wall);
  // Drops all but the last `count` events.
  void Keep(size_t count);
  // Returns the events after number `seq`, one JSON object per line: docs/protocol.md, "HTTP".
  std::string After(uint64_t seq) const;
  // Null if there are no events.
  const Event* last() const { return events_.empty() ? nullptr : &events_.back(); }

 private:
  static constexpr size_t kMaxEvents = 1000;

  std::deque<Event> events_;
  TimePoint first_;  // time of the first event ever added
  uint64_t next_seq_ = 1;
};

}  // namespace ddprun
