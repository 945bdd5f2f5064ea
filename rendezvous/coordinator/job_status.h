// Formats the status of one job for the status page.
#pragma once

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/json/object.hpp"
#include "rendezvous/coordinator/event_ring.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun {

// Returns the status of the job as a JSON object. Takes O(nodes) time.
//   Source: docs/protocol.md, section "HTTP", lists the members of the object.
boost::json::object JobStatus(absl::string_view run_id, const RoundMachine& machine, const EventRing& events,
                              TimePoint now);

}  // namespace ddprun
