// Finds the coordinator of a job at the endpoint of its configuration.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/client/find_coordinator.h"

namespace ddprun {

// Looks for the coordinator at the endpoint. In a job of a scheduler, also at the addresses that the scheduler knows, if the host
// is not found by its name.
//   ended:  whether the search is no longer of use.
//   Errors: those of FindCoordinator.
//   Owns:   nothing; `config` and `log` must outlive the coroutine.
boost::asio::awaitable<absl::StatusOr<FoundCoordinator>> FindJob(boost::asio::io_context& io,
                                                                 const LaunchConfig& config,
                                                                 const AgentLog& log,
                                                                 std::function<bool()> ended);

}  // namespace ddprun
