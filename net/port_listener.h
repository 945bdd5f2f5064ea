// One TCP port for up to three protocols, told apart by the first byte of each connection.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {

// Who gets a connection. Nothing of it has been read yet. The handler owns `fd`, which does not block.
struct PortHandlers {
  // A connection that is no other's, and all of them when there is no other. Required.
  std::function<void(int fd)> c10d;
  // First byte 'P' (the preface of HTTP/2) or 0x16 (TLS). May be empty.
  std::function<void(int fd)> grpc;
  // First byte 'G' or 'H': GET and HEAD of HTTP/1. May be empty.
  std::function<void(boost::asio::ip::tcp::socket)> http;
  // Told when accepting has to wait for want of file descriptors or memory, and not again before a connection
  // was accepted. May be empty.
  std::function<void(const absl::Status& why)> on_full = nullptr;
};

// Accepts until closed, also through times without free file descriptors; the last 32 are left to others. A
// peer that says nothing is kept, for ever and at the price of a socket: old PyTorch clients hold one such
// connection each. One whose host has vanished goes when TCP's keepalive finds that out (two hours, unless
// the system is told another time).
//   Threads: that of `io`.
//   Owns:    the port and the connections that have said nothing yet.
class PortListener {
 public:
  // `address`: empty for all of this host, IPv4 and IPv6; else an address or name of this host. `port`: 0 for
  // any free one.
  //   Errors: kFailedPrecondition: the port is taken, or needs privileges;
  //           kInvalidArgument: the address is none of this host.
  static absl::StatusOr<std::unique_ptr<PortListener>> Open(boost::asio::io_context& io,
                                                            const std::string& address, int port,
                                                            PortHandlers handlers);
  ~PortListener();
  PortListener(const PortListener&) = delete;
  PortListener& operator=(const PortListener&) = delete;

  int port() const { return port_; }
  // How often accepting had to be put off for want of a file descriptor or memory.
  int64_t num_pauses() const;

  // Frees the port. Who has connected before is still handed over, here: closing the port would reset them.
  // Then hangs up on peers that have said nothing. No handler is called after it. Destroying it does the same
  // but the handing over.
  void Close();

 private:
  struct State;
  PortListener(std::shared_ptr<State> state, int port);

  const std::shared_ptr<State> state_;  // with its pending operations
  const int port_;
};

}  // namespace ddprun
