#include "rendezvous/voters/grpc_vote_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "proto/voters.grpc.pb.h"
#include "rendezvous/client/grpc_channel.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

// The channels of voters that have exited are closed when there are so many.
constexpr size_t kMaxChannels = 32;
constexpr int kMaxReplyBytes = 64 << 20;

struct Messages {
  proto::VoteRequest request;
  proto::VoteReply reply;
  std::unique_ptr<proto::Voters::Stub> stub;
};

}  // namespace

GrpcVoteClient::GrpcVoteClient(boost::asio::io_context& io, std::string run_id)
    : run_id_(std::move(run_id)), calls_(io) {}

void GrpcVoteClient::Send(const std::string& address, const VoteRequest& request, Duration limit,
                          std::function<void(absl::StatusOr<VoteReply>)> done) {
  if (channels_.size() >= kMaxChannels && !channels_.contains(address)) channels_.clear();
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) channel = MakeChannelTo(address, kMaxReplyBytes);
  auto messages = std::make_shared<Messages>();
  messages->request = EncodeVoteRequest(run_id_, request);
  calls_.Send(
      std::chrono::steady_clock::now() + limit,
      [messages, channel](grpc::ClientContext* context, std::function<void(grpc::Status)> ended) {
        messages->stub = proto::Voters::NewStub(channel);
        messages->stub->async()->Vote(context, &messages->request, &messages->reply, std::move(ended));
      },
      [this, address, channel, messages, done = std::move(done)](const absl::Status& status) {
        if (status.ok()) return done(DecodeVoteReply(messages->reply));
        // A channel that has failed waits before it connects again; a new one does not.
        const auto current = channels_.find(address);
        if (absl::IsUnavailable(status) && current != channels_.end() && current->second == channel)
          channels_.erase(current);
        done(status);
      });
}

}  // namespace ddprun
