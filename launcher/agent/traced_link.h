// Logs rendezvous messages, for LOGLEVEL=DEBUG.
#pragma once

#include <memory>

#include "launcher/agent/agent_log.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// Returns a link that logs all messages sent and received on `link`, except heartbeats and their answers.
// Returns `link` itself if `log` shows no details. `log` must outlive the returned link.
std::unique_ptr<CoordinatorLink> TraceLink(std::unique_ptr<CoordinatorLink> link, const AgentLog& log);

}  // namespace ddprun
