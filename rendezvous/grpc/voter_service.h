// Passes votes to the voter of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "proto/voters.grpc.pb.h"
#include "rendezvous/grpc/open_requests.h"

namespace ddprun {

using AnswerVote = std::function<absl::StatusOr<proto::VoteReply>(const proto::VoteRequest& request)>;

// Every request is answered exactly once: by `answer` on the thread of `io`, or with UNAVAILABLE after EndAll.
//   Threads: gRPC's threads call Vote. Use must be called on the thread of `io`.
class VoterService final : public proto::Voters::CallbackService {
 public:
  // `arrived` is called for each request with the peer's name and the size of the request.
  using Arrived = std::function<void(const std::string& peer, uint64_t bytes)>;
  VoterService(boost::asio::io_context& io, Arrived arrived) : io_(io), arrived_(std::move(arrived)) {}

  // Empty: this process is not a voter, and says NOT_FOUND.
  void Use(AnswerVote answer) { *answer_ = std::move(answer); }
  grpc::ServerUnaryReactor* Vote(grpc::CallbackServerContext* context, const proto::VoteRequest* request,
                                 proto::VoteReply* reply) override;
  // Answers all open and later requests with UNAVAILABLE. Must be called before the server is shut down.
  void EndAll();

 private:
  boost::asio::io_context& io_;
  const Arrived arrived_;
  const std::shared_ptr<AnswerVote> answer_ = std::make_shared<AnswerVote>();  // thread of `io`
  const std::shared_ptr<OpenRequests> open_ = std::make_shared<OpenRequests>();
};

}  // namespace ddprun
