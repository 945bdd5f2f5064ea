// The link between the coordinator and the agent in its own process: the same messages, no network.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// `address` is where workers of other nodes reach this host. Without the coordinator what is sent goes
// nowhere. Heartbeats are sent each second, and only if there is a handler for what they say.
std::unique_ptr<CoordinatorLink> MakeLocalLink(boost::asio::io_context& io, Coordinator* coordinator,
                                               std::string address);

}  // namespace ddprun
