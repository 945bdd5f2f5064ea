// The gRPC face of the coordinator's port: takes connections that the listener has told apart, and makes them
// agents.
#pragma once

#include <memory>

#include "boost/asio/io_context.hpp"
#include "rendezvous/server/coordinator.h"

namespace ddprun {

// gRPC with its threads is started with the first connection: a job on one node never pays for it.
//   Threads: calls from that of `io`; gRPC's own threads post to it.
//   Owns:    the connections.
class GrpcPort {
 public:
  GrpcPort(boost::asio::io_context& io, Coordinator* coordinator);
  // Ends what is left of the streams, at most a second long.
  ~GrpcPort();
  GrpcPort(const GrpcPort&) = delete;
  GrpcPort& operator=(const GrpcPort&) = delete;

  // Takes over a connected, non-blocking socket of which nothing has been read.
  void Adopt(int fd);

 private:
  class Service;
  struct Server;

  boost::asio::io_context& io_;
  Coordinator* const coordinator_;
  std::unique_ptr<Server> server_;  // null before the first connection
};

}  // namespace ddprun
