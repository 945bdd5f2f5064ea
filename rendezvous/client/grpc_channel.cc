#include "rendezvous/client/grpc_channel.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "boost/asio/ip/address.hpp"
#include "net/endpoint.h"

namespace ddprun {

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, int max_message_bytes) {
  grpc::ChannelArguments arguments;
  // The environment variable http_proxy is meant for other traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(max_message_bytes);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeCoordinatorChannel(const std::string& address, int port,
                                                      int max_message_bytes) {
  const bool ipv6 = address.find(':') != std::string::npos;
  // The target is a URI, so the '%' before the interface name in a link-local address must be escaped.
  const std::string target =
      ipv6 ? absl::StrCat("ipv6:[", absl::StrReplaceAll(address, {{"%", "%25"}}), "]:", port)
           : absl::StrCat("ipv4:", address, ":", port);
  return MakeChannel(target, max_message_bytes);
}

std::shared_ptr<grpc::Channel> MakeChannelTo(const std::string& address, int max_message_bytes) {
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(address, -1);
  boost::system::error_code not_numeric;
  if (endpoint.ok()) boost::asio::ip::make_address(endpoint->host, not_numeric);
  if (!endpoint.ok() || not_numeric) return MakeChannel(absl::StrCat("dns:///", address), max_message_bytes);
  return MakeCoordinatorChannel(endpoint->host, endpoint->port, max_message_bytes);
}

}  // namespace ddprun
