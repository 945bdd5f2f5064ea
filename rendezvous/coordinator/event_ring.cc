#include "rendezvous/coordinator/event_ring.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "boost/json/object.hpp"
#include "boost/json/serialize.hpp"

namespace ddprun {

void EventRing::Add(absl::string_view event, absl::string_view reason, TimePoint now,
                    std::chrono::system_clock::time_point wall) {
  if (next_seq_ == 1) first_ = now;
  events_.push_back({next_seq_++, now, wall, std::string(event), std::string(reason)});
  Keep(kMaxEvents);
}

void EventRing::Keep(size_t count) {
  while (events_.size() > count) events_.pop_front();
}

std::string EventRing::After(uint64_t seq) const {
  std::string lines;
  for (const Event& e : events_) {
    if (e.seq <= seq) continue;
    const std::string time =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(e.wall), absl::UTCTimeZone());
    const boost::json::object line{{"seq", e.seq},
                                   {"ms", (e.at - first_) / milliseconds(1)},
                                   {"time", time},
                                   {"event", e.event},
                                   {"reason", e.reason}};
    absl::StrAppend(&lines, boost::json::serialize(line), "\n");
  }
  return lines;
}

}  // namespace ddprun
