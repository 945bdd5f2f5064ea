#include "rendezvous/grpc/voter_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/status.h"
#include "boost/asio/post.hpp"
#include "proto/grpc_status.h"

namespace ddprun {
namespace {

grpc::Status Ending() { return {grpc::StatusCode::UNAVAILABLE, "the voter is ending"}; }

}  // namespace

grpc::ServerUnaryReactor* VoterService::Vote(grpc::CallbackServerContext* context,
                                             const proto::VoteRequest* request, proto::VoteReply* reply) {
  arrived_(context->peer(), request->ByteSizeLong());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!open_->Add(reactor)) {
    reactor->Finish(Ending());
    return reactor;
  }
  boost::asio::post(io_, [open = open_, answer = answer_, reactor, request, reply] {
    if (!open->Has(reactor)) return;
    absl::StatusOr<proto::VoteReply> result = absl::NotFoundError("this process is not a voter");
    if (*answer) result = (*answer)(*request);
    if (!open->Take(reactor)) return;
    const absl::Status status = result.status();
    if (status.ok()) *reply = *std::move(result);
    reactor->Finish(ToGrpc(status));
  });
  return reactor;
}

void VoterService::EndAll() {
  for (grpc::ServerUnaryReactor* reactor : open_->End()) reactor->Finish(Ending());
}

}  // namespace ddprun
