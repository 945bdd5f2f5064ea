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

// Handlers for new connections, from which no byte has been read yet. The handler owns `fd`, which is
// non-blocking.
struct PortHandlers {
  // All other connections. If grpc and http are empty: every connection, without waiting for its first byte.
  // Required.
  std::function<void(int fd)> c10d;
  // First byte 'P' (the preface of HTTP/2) or 0x16 (TLS). May be empty.
  std::function<void(int fd)> grpc;
  // First byte 'G', 'H' or 'D': GET, HEAD and DELETE of HTTP/1. May be empty.
  std::function<void(boost::asio::ip::tcp::socket)> http;
  // Called when accepting pauses for lack of descriptors or memory; not called again until a connection has
  // been accepted. May be empty.
  std::function<void(const absl::Status& why)> on_full = nullptr;
};

// Accepts connections until closed; pauses while no descriptor is free. The last 32 descriptors are reserved
// for other uses. A connection on which the peer sends nothing is kept without a time limit, at the cost of
// one socket, because each old PyTorch client holds one. If the peer's host is down, TCP keepalive ends the
// connection, by default after two hours.
//   Threads: that of `io`.
//   Owns:    the port and the connections that have sent nothing yet.
class PortListener {
 public:
  // `address`: an address or name of this host; empty: all its addresses, IPv4 and IPv6. `port`: 0 selects a
  // free port. Blocks if `address` is a name.
  //   Errors: kFailedPrecondition: the port is taken, or requires privileges;
  //           kInvalidArgument: the address does not belong to this host, or the port is out of range.
  static absl::StatusOr<std::unique_ptr<PortListener>> Open(boost::asio::io_context& io,
                                                            const std::string& address, int port,
                                                            PortHandlers handlers);
  ~PortListener();
  PortListener(const PortListener&) = delete;
  PortListener& operator=(const PortListener&) = delete;

  int port() const { return port_; }
  // How often accepting has paused for lack of descriptors or memory.
  int64_t num_pauses() const;

  // Accepts pending connections and hands them over, because closing the port would reset them. Then frees
  // the port and closes connections that have sent nothing. No handler is called afterwards. The destructor
  // does the same, but hands over no connections.
  void Close();

 private:
  struct State;
  PortListener(std::shared_ptr<State> state, int port);

  const std::shared_ptr<State> state_;  // shared with its pending operations
  const int port_;
};

}  // namespace ddprun
