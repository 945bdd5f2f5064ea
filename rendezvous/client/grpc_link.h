// A CoordinatorLink to a coordinator on another node. The link is one gRPC stream.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/client/link_watch.h"

namespace ddprun {

// `address` is numeric. The Welcome sets the heartbeat interval. The link is lost when the connection
// breaks, when no Welcome arrives within `welcome_limit`, or when the coordinator has been silent for longer
// than the lease (see LinkWatch). The destructor of the link blocks for up to 2 s while it sends queued
// messages.
std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port, Duration welcome_limit = LinkWatch::kWelcomeLimit);

}  // namespace ddprun
