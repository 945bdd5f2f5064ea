// Creates the gRPC channels for all clients of a coordinator.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace ddprun {

// `address` is numeric. Each channel has its own connection and uses no proxy. A call fails if it receives a
// message larger than `max_message_bytes`.
std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port,
                                                      int max_message_bytes = 4 << 20);

}  // namespace ddprun
