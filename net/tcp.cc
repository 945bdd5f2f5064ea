#include "net/tcp.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "boost/asio/ip/v6_only.hpp"

namespace ddprun {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

tcp::endpoint ToEndpoint(const SocketAddress& address) {
  tcp::endpoint endpoint;
  endpoint.resize(address.size);
  std::memcpy(endpoint.data(), &address.storage, address.size);
  return endpoint;
}

error_code Listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, int backlog) {
  error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (ec) return ec;
  ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (endpoint.protocol() == tcp::v6()) {
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), ec);
  }
  acceptor.set_option(asio::socket_base::keep_alive(true), ec);
  acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(backlog, ec);
  if (!ec) acceptor.non_blocking(true, ec);
  if (ec) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return ec;
}

error_code ListenOnAllAddresses(tcp::acceptor& acceptor, uint16_t port, int backlog) {
  error_code ec = Listen(acceptor, {tcp::v6(), port}, backlog);
  if (ec == asio::error::address_family_not_supported || ec.value() == EADDRNOTAVAIL) {
    ec = Listen(acceptor, {tcp::v4(), port}, backlog);
  }
  return ec;
}

}  // namespace ddprun
