// One TCP port for up to three protocols, distinguished by the first byte of each connection.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// Handlers for new connections, from which no byte has been read yet. A handler takes ownership of its
// connection, which is non-blocking.
struct PortHandlers {
  // Receives the connections that neither `grpc` nor `http` receives. If both are empty, receives every
  // connection without waiting for its first byte. Required.
  std::function<void(int fd)> c10d;
  // Receives connections whose first byte is 'P' (the HTTP/2 preface) or 0x16 (TLS). May be empty.
  std::function<void(int fd)> grpc;
  // Receives connections whose first byte is 'G', 'H' or 'D' (GET, HEAD and DELETE of HTTP/1). May be empty.
  std::function<void(boost::asio::ip::tcp::socket)> http;
  // Called when the listener stops accepting for a short time because descriptors or memory are exhausted.
  // Not called again until a connection has been accepted. May be empty.
  std::function<void(const absl::Status& why)> on_full = nullptr;
};

// Accepts connections until it is closed. Stops accepting while no descriptor is free. 32 descriptors are
// reserved for other uses and do not count as free. A connection on which the peer sends nothing stays open
// without a time limit, because each client of an old PyTorch version keeps such a connection open. Each of
// these connections uses one descriptor. If the peer's host is down, TCP keepalive ends the connection, by
// default after two hours.
//   Threads: only the thread of `io`.
//   Owns:    the port, and the connections on which no byte has arrived yet.
class PortListener {
 public:
  // Listens on `address`, an address or name of this host. If `address` is empty, listens on all IPv4 and
  // IPv6 addresses of this host. Port 0 selects a free port. Blocks for up to 10 s if `address` is a name.
  //   Errors: kAlreadyExists: the port is taken; kFailedPrecondition: it requires privileges;
  //           kInvalidArgument: the address does not belong to this host, or the port is out of range.
  static absl::StatusOr<std::unique_ptr<PortListener>> Open(boost::asio::io_context& io,
                                                            const std::string& address, int port,
                                                            PortHandlers handlers);
  ~PortListener();
  PortListener(const PortListener&) = delete;
  PortListener& operator=(const PortListener&) = delete;

  int port() const { return port_; }
  // Returns the number of times that the listener stopped accepting because descriptors or memory were
  // exhausted.
  int64_t num_pauses() const;

  // Accepts the pending connections, because closing the port would reset them, and passes each of them to
  // its handler. Then closes the port and the connections on which no byte has arrived. No handler is
  // called afterwards. The destructor does the same, but does not accept pending connections.
  void Close();

 private:
  struct State;
  PortListener(std::shared_ptr<State> state, int port);

  const std::shared_ptr<State> state_;  // shared with pending operations
  const int port_;
};

}  // namespace ddprun
