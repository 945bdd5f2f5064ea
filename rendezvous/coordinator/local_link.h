// The link between the coordinator and the agent in the same process. The link passes the same messages as
// a gRPC link, but does not use the network.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/coordinator/coordinator.h"

namespace ddprun {

// `address` is the address at which workers of other nodes reach this host. The coordinator may be destroyed
// before the link. After the coordinator is destroyed, the link drops all messages to the coordinator. If
// Handlers::heartbeat is set, the link sends a heartbeat every second, or as often as the Welcome requests. It is lost if the
// coordinator disconnects the agent.
//   REQUIRES: `io` runs on the coordinator's thread.
std::unique_ptr<CoordinatorLink> MakeLocalLink(boost::asio::io_context& io, Coordinator* coordinator,
                                               std::string address);

}  // namespace ddprun
