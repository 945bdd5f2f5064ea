// The link to a coordinator on another node: one gRPC stream.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/client/link_watch.h"

namespace ddprun {

// `address` is numeric. Sends heartbeats as often as the coordinator's Welcome asks for, by itself. The link
// is lost when the connection breaks, and also when the coordinator does not welcome the agent within
// `welcome_limit`, or stays silent for more than its lease. Destroying the link takes up to 2 s, for the last
// words.
std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port, Duration welcome_limit = LinkWatch::kWelcomeLimit);

}  // namespace ddprun
