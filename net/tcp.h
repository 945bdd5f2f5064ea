// TCP with Asio: addresses as endpoints, and listening.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "boost/asio/ip/tcp.hpp"
#include "boost/system/error_code.hpp"
#include "net/name_lookup.h"

namespace ddprun {

boost::asio::ip::tcp::endpoint ToEndpoint(const SocketAddress& address);

// Makes `acceptor` listen on `endpoint`, with SO_REUSEADDR, non-blocking and closed on exec. Its connections
// inherit TCP keepalive, which detects peers whose host is down. The IPv6 wildcard address also accepts IPv4.
// After an error `acceptor` is closed.
boost::system::error_code Listen(boost::asio::ip::tcp::acceptor& acceptor,
                                 const boost::asio::ip::tcp::endpoint& endpoint, int backlog = SOMAXCONN);

// Listens on `port` of all addresses of this host: IPv6 and IPv4, or only IPv4 on a host without IPv6.
boost::system::error_code ListenOnAllAddresses(boost::asio::ip::tcp::acceptor& acceptor, uint16_t port,
                                               int backlog = SOMAXCONN);

}  // namespace ddprun
