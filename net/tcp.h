// TCP helpers for Asio: conversion of addresses to endpoints, and listening sockets.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "boost/asio/ip/tcp.hpp"
#include "boost/system/error_code.hpp"
#include "net/name_lookup.h"

namespace ddprun {

boost::asio::ip::tcp::endpoint ToEndpoint(const SocketAddress& address);

// Makes `acceptor` listen on `endpoint`. The socket has SO_REUSEADDR, is non-blocking and is closed on exec.
// Accepted connections inherit TCP keepalive, which detects that the host of a peer is down. A socket on the
// IPv6 wildcard address also accepts IPv4 connections. After an error, `acceptor` is closed.
boost::system::error_code Listen(boost::asio::ip::tcp::acceptor& acceptor,
                                 const boost::asio::ip::tcp::endpoint& endpoint, int backlog = SOMAXCONN);

// Like Listen, but listens on `port` of all addresses of this host: IPv6 and IPv4, or only IPv4 on a host
// without IPv6.
boost::system::error_code ListenOnAllAddresses(boost::asio::ip::tcp::acceptor& acceptor, uint16_t port,
                                               int backlog = SOMAXCONN);

}  // namespace ddprun
