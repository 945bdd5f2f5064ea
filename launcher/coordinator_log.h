// What a coordinator in this process has to tell.
#pragma once

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/agent/agent_log.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// How long other agents may take to hear a coordinator's last word.
inline constexpr Duration kFarewell = seconds(5);

// Its transitions, as events of `log`, which outlives it; what concerns no job (its port is full, a client of
// its store was shown out) is said to everybody.
inline Coordinator::Log CoordinatorLog(const AgentLog& log) {
  return [&log](absl::string_view event, absl::string_view run_id, absl::string_view reason) {
    log.Event(event, {{"job", run_id}, {"reason", reason}});
    if (run_id.empty()) log.Say(reason);
  };
}

}  // namespace ddprun
