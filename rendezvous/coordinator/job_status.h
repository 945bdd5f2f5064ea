// The status page of a job.
#pragma once

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/json/object.hpp"
#include "rendezvous/coordinator/event_ring.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun {

// Takes O(nodes).
//   Source: docs/protocol.md, "HTTP", lists the members.
boost::json::object JobStatus(absl::string_view run_id, const RoundMachine& machine, const EventRing& events,
                              TimePoint now);

}  // namespace ddprun
