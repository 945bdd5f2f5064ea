// The link to a coordinator on another node: one gRPC stream.
#pragma once

#include <memory>
#include <string>

#include "boost/asio/io_context.hpp"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// `address` is numeric. Says something at least as often as the coordinator's Welcome asks for, by itself.
std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port);

}  // namespace ddprun
