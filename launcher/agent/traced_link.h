// The steps of the rendezvous, for LOGLEVEL=DEBUG.
#pragma once

#include <memory>

#include "launcher/agent/agent_log.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// A link that also says in `log`, which outlives it, what is sent and received on it, heartbeats left out. It
// is `link` itself where the log shows no details.
std::unique_ptr<CoordinatorLink> TraceLink(std::unique_ptr<CoordinatorLink> link, const AgentLog& log);

}  // namespace ddprun
