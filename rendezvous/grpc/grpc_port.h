// The gRPC server on the coordinator's port. It adopts the connections that the listener has classified as
// gRPC, and serves agents, other voters of the job, ddpctl and store clients.
#pragma once

#include <memory>
#include <string>

#include "boost/asio/io_context.hpp"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/core/store_hub.h"
#include "rendezvous/grpc/partial_message_limiter.h"
#include "rendezvous/grpc/voter_service.h"

namespace ddprun {

// gRPC and its threads start with the first connection, so that a job on one node never starts them.
//   Threads: all calls must be made on the thread of `io`. gRPC's threads post handlers to `io`.
//   Owns:    the connections.
class GrpcPort {
 public:
  // `on_error` and `limits` are passed to PartialMessageLimiter. `coordinator` is borrowed.
  GrpcPort(boost::asio::io_context& io, Coordinator* coordinator,
           PartialMessageLimiter::OnError on_error = {}, const PartialMessageLimits& limits = {});
  // Ends the remaining streams. Blocks for about 1 s at most.
  ~GrpcPort();
  GrpcPort(const GrpcPort&) = delete;
  GrpcPort& operator=(const GrpcPort&) = delete;

  // Sets the store for later calls from store clients. `store` is borrowed. Null, which is the initial value,
  // means that there is no store. Calls that wait in the previous store keep waiting until that store is
  // destroyed.
  void ServeStore(StoreHub* store);
  // Ends all open calls from store clients and rejects later ones. `why` becomes the error message.
  void EndStore(const std::string& why);

  // Sets what answers votes; empty, which is the initial value: this process is not a voter.
  void ServeVotes(AnswerVote answer);

  // Takes ownership of a connected, nonblocking socket from which nothing has been read.
  void Adopt(int fd);

 private:
  class Service;
  struct Server;

  boost::asio::io_context& io_;
  Coordinator* const coordinator_;
  PartialMessageLimiter partial_messages_;
  StoreHub* store_ = nullptr;
  AnswerVote answer_vote_;
  std::unique_ptr<Server> server_;  // null before the first connection
};

}  // namespace ddprun
