// The most recent events of a job, oldest first, with the reason for each event.
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
    uint64_t seq = 0;  // sequence number within the job; the first event has number 1
    TimePoint at;      // on the monotonic clock
    std::chrono::system_clock::time_point wall;  // for display; jumps when the system clock is set
    std::string event;
    std::string reason;
  };

  void Add(absl::string_view event, absl::string_view reason, TimePoint now,
           std::chrono::system_clock::time_point wall);
  // Drops all but the most recent `count` events.
  void Keep(size_t count);
  // Returns the stored events with sequence numbers greater than `seq`, oldest first, as one JSON object
  // per line.
  //   Source: docs/protocol.md, section "HTTP".
  std::string After(uint64_t seq) const;
  // Returns the most recent event, or null if no event is stored.
  const Event* last() const { return events_.empty() ? nullptr : &events_.back(); }

 private:
  static constexpr size_t kMaxEvents = 1000;

  std::deque<Event> events_;
  TimePoint first_;  // time of the first event that was added, which may no longer be stored
  uint64_t next_seq_ = 1;
};

}  // namespace ddprun
