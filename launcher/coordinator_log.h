// The log of a coordinator that runs in this process.
#pragma once

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/agent/agent_log.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// How long a closing coordinator waits for other agents to receive its last message.
inline constexpr Duration kFarewell = seconds(5);

// Writes the coordinator's transitions to `log` as events. Events that belong to no job, such as a full port
// or a rejected store client, are also logged as plain lines.
//   Owns: nothing; `log` must outlive the coordinator.
inline Coordinator::Log CoordinatorLog(const AgentLog& log) {
  return [&log](absl::string_view event, absl::string_view run_id, absl::string_view reason) {
    log.Event(event, {{"job", run_id}, {"reason", reason}});
    if (run_id.empty()) log.Say(reason);
  };
}

}  // namespace ddprun
