// The link between the coordinator and the agent in its own process: the same messages without a network.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// `address` is the address of this host for workers of other nodes. The coordinator may be destroyed first:
// messages are then dropped. Sends a heartbeat every second if Handlers::heartbeat is set.
std::unique_ptr<CoordinatorLink> MakeLocalLink(boost::asio::io_context& io, Coordinator* coordinator,
                                               std::string address);

}  // namespace ddprun
