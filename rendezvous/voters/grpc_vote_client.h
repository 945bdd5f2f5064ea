// Votes by gRPC.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "proto/voters.pb.h"
#include "rendezvous/client/unary_calls.h"
#include "rendezvous/voters/vote_client.h"

namespace ddprun {

class GrpcVoteClient final : public VoteClient {
 public:
  GrpcVoteClient(boost::asio::io_context& io, std::string run_id);

  void Send(const std::string& address, const VoteRequest& request, Duration limit,
            std::function<void(absl::StatusOr<VoteReply>)> done) override;

 private:
  struct Channel {
    std::shared_ptr<grpc::Channel> channel;
    TimePoint created = {};
    TimePoint heard = {};  // when an answer came last
  };
  using Done = std::function<void(absl::StatusOr<VoteReply>)>;

  // Resolves the host of `address`, then sends the request.
  boost::asio::awaitable<void> ResolveAndSend(std::string address, proto::VoteRequest request, TimePoint end,
                                              Done done);
  void SendOn(const std::shared_ptr<Channel>& channel, const std::string& address, proto::VoteRequest request,
              TimePoint end, Done done);
  // A call has failed because there is no connection. Says so, or that no process listens at the address.
  boost::asio::awaitable<void> Explain(std::string address, absl::Status status, TimePoint end, Done done);
  // A call that began at `sent` has ended.
  void Ended(const std::string& address, const std::shared_ptr<Channel>& channel, TimePoint sent,
             const absl::Status& status);

  boost::asio::io_context& io_;
  const std::string run_id_;
  std::map<std::string, std::shared_ptr<Channel>> channels_;  // by address
  UnaryCalls calls_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // checked by coroutines
};

}  // namespace ddprun
