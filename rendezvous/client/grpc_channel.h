// The one way to connect to a coordinator by gRPC.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace ddprun {

// `address` is numeric. Each channel has a connection of its own, and goes through no proxy. Answers of more
// than `max_message_bytes` are refused.
std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port,
                                                      int max_message_bytes = 4 << 20);

}  // namespace ddprun
