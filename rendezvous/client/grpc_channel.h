// Creates gRPC channels to a coordinator; all clients use this function.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace ddprun {

// `address` is numeric. Each channel has its own connection and uses no proxy. Received messages larger than
// `max_message_bytes` are errors.
std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port,
                                                      int max_message_bytes = 4 << 20);

}  // namespace ddprun
