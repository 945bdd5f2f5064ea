// The log of a coordinator that runs in this process.
#pragma once

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/agent/agent_log.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// How long a closing coordinator waits for agents to receive their dismissal and disconnect.
inline constexpr Duration kFarewell = seconds(5);

// Returns a log that writes the coordinator's events to `log`. An event that belongs to no job, such as a
// failure to accept connections or the disconnection of a store client after an error, is also logged as a line
// for users, and so is a round that stands still.
//   Owns: nothing; `log` must outlive the coordinator.
inline Coordinator::Log CoordinatorLog(const AgentLog& log) {
  return [&log](absl::string_view event, absl::string_view run_id, absl::string_view reason) {
    log.Event(event, {{"job", run_id}, {"reason", reason}});
    if (run_id.empty() || Coordinator::IsForUsers(event)) log.Say(reason);
  };
}

}  // namespace ddprun
