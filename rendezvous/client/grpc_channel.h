// The one way to connect to a coordinator by gRPC.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace ddprun {

// `address` is numeric. Each channel has a connection of its own, and goes through no proxy.
std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port);

}  // namespace ddprun
