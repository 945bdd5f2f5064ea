#include "rendezvous/client/grpc_channel.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun {

std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port,
                                                      int max_message_bytes) {
  grpc::ChannelArguments arguments;
  // The environment variable http_proxy is meant for other traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(max_message_bytes);
  const bool ipv6 = address.find(':') != std::string::npos;
  // The target is a URI, so the '%' before the interface name in a link-local address must be escaped.
  const std::string target =
      ipv6 ? absl::StrCat("ipv6:[", absl::StrReplaceAll(address, {{"%", "%25"}}), "]:", port)
           : absl::StrCat("ipv4:", address, ":", port);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace ddprun
