// The gRPC face of the coordinator's port: takes connections that the listener has told apart, for agents,
// ddpctl and clients of the store.
#pragma once

#include <memory>
#include <string>

#include "boost/asio/io_context.hpp"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/core/store_hub.h"
#include "rendezvous/grpc/partial_message_limiter.h"

namespace ddprun {

// gRPC with its threads is started with the first connection: a job on one node never pays for it.
//   Threads: calls from that of `io`; gRPC's own threads post to it.
//   Owns:    the connections.
class GrpcPort {
 public:
  // `on_error`: as that of PartialMessageLimiter.
  GrpcPort(boost::asio::io_context& io, Coordinator* coordinator,
           PartialMessageLimiter::OnError on_error = {}, const PartialMessageLimits& limits = {});
  // Ends what is left of the streams, at most a second long.
  ~GrpcPort();
  GrpcPort(const GrpcPort&) = delete;
  GrpcPort& operator=(const GrpcPort&) = delete;

  // From now on store clients use `store`, which is the caller's; null, as in the beginning: there is none.
  // Those that wait in the one before stay there until it is destroyed.
  void ServeStore(StoreHub* store);
  // Ends all that wait in a store, and refuses store clients from now on: `why` tells them.
  void EndStore(const std::string& why);

  // Takes over a connected, non-blocking socket of which nothing has been read.
  void Adopt(int fd);

 private:
  class Service;
  struct Server;

  boost::asio::io_context& io_;
  Coordinator* const coordinator_;
  PartialMessageLimiter partial_messages_;
  StoreHub* store_ = nullptr;
  std::unique_ptr<Server> server_;  // null before the first connection
};

}  // namespace ddprun
