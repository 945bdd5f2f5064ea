// The link to a coordinator on another node: one gRPC stream.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/client/link_watch.h"

namespace ddprun {

// `address` is numeric. The Welcome sets the heartbeat interval. The link is lost when the connection
// breaks, when no Welcome arrives within `welcome_limit`, or when the coordinator is silent for longer than
// the lease. The destructor may block for up to 2 s to send queued messages.
std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port, Duration welcome_limit = LinkWatch::kWelcomeLimit);

}  // namespace ddprun
