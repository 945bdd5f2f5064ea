// Votes by gRPC.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "boost/asio/io_context.hpp"
#include "rendezvous/client/unary_calls.h"
#include "rendezvous/voters/voter_register.h"

namespace ddprun {

class GrpcVoteClient final : public VoteClient {
 public:
  GrpcVoteClient(boost::asio::io_context& io, std::string run_id);

  void Send(const std::string& address, const VoteRequest& request, Duration limit,
            std::function<void(absl::StatusOr<VoteReply>)> done) override;

 private:
  const std::string run_id_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;  // by address
  UnaryCalls calls_;
};

}  // namespace ddprun
