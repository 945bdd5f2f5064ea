#include "rendezvous/voters/grpc_vote_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/experimental/awaitable_operators.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "net/endpoint.h"
#include "net/name_lookup.h"
#include "net/tcp.h"
#include "proto/voters.grpc.pb.h"
#include "rendezvous/client/grpc_channel.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;  // NOLINT: operator|| on awaitables

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// The channels of voters that have exited are closed when there are so many.
constexpr size_t kMaxChannels = 32;
constexpr int kMaxReplyBytes = 64 << 20;
// How long a channel may be without an answer before it is replaced.
constexpr Duration kPatience = seconds(1);

struct Messages {
  proto::VoteRequest request;
  proto::VoteReply reply;
  std::unique_ptr<proto::Voters::Stub> stub;
};

void Rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

// The name is not left to gRPC, whose lookups ignore the rules of the host (nsswitch.conf) and may take seconds for a name that
// /etc/hosts has.
asio::awaitable<absl::StatusOr<asio::ip::tcp::endpoint>> Resolve(asio::io_context& io, Endpoint endpoint,
                                                                 TimePoint end) {
  const NameLookup lookup(endpoint.host, endpoint.port);
  if (lookup.fd() >= 0) {
    asio::posix::stream_descriptor answer(io);
    answer.assign(lookup.fd());
    const absl::Cleanup not_ours = [&answer] { answer.release(); };
    asio::steady_timer timer(io, end);
    const auto resolved = co_await (answer.async_wait(asio::posix::stream_descriptor::wait_read, kAwait) ||
                                    timer.async_wait(kAwait));
    if (resolved.index() != 0) {
      co_return absl::DeadlineExceededError(absl::StrCat(endpoint.host, " does not resolve in time"));
    }
  }
  const absl::StatusOr<std::vector<SocketAddress>> found = lookup.Result();
  if (!found.ok()) co_return found.status();
  if (found->empty()) co_return absl::UnavailableError(absl::StrCat(endpoint.host, " has no address"));
  co_return ToEndpoint(found->front());
}

}  // namespace

GrpcVoteClient::GrpcVoteClient(asio::io_context& io, std::string run_id)
    : io_(io), run_id_(std::move(run_id)), calls_(io) {}

void GrpcVoteClient::Send(const std::string& address, const VoteRequest& request, Duration limit, Done done) {
  const TimePoint end = std::chrono::steady_clock::now() + limit;
  proto::VoteRequest message = EncodeVoteRequest(run_id_, request);
  const auto known = channels_.find(address);
  if (known != channels_.end())
    return SendOn(known->second, address, std::move(message), end, std::move(done));
  asio::co_spawn(io_, ResolveAndSend(address, std::move(message), end, std::move(done)), Rethrow);
}

asio::awaitable<void> GrpcVoteClient::ResolveAndSend(std::string address, proto::VoteRequest request,
                                                     TimePoint end, Done done) {
  const std::weak_ptr<int> alive = alive_;
  // An error of a coroutine that has not been suspended would call `done` within Send.
  co_await asio::post(io_, asio::use_awaitable);
  if (alive.expired()) co_return;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(address, -1);
  if (!endpoint.ok()) {
    done(endpoint.status());
    co_return;
  }
  const absl::StatusOr<asio::ip::tcp::endpoint> resolved = co_await Resolve(io_, *endpoint, end);
  if (alive.expired()) co_return;
  if (!resolved.ok()) {
    done(resolved.status());
    co_return;
  }
  if (channels_.size() >= kMaxChannels && !channels_.contains(address)) channels_.clear();
  std::shared_ptr<Channel>& channel = channels_[address];
  if (channel == nullptr) {
    channel = std::make_shared<Channel>(
        Channel{MakeCoordinatorChannel(resolved->address().to_string(), resolved->port(), kMaxReplyBytes),
                std::chrono::steady_clock::now()});
  }
  SendOn(std::shared_ptr(channel), address, std::move(request), end, std::move(done));
}

void GrpcVoteClient::SendOn(const std::shared_ptr<Channel>& channel, const std::string& address,
                            proto::VoteRequest request, TimePoint end, Done done) {
  auto messages = std::make_shared<Messages>();
  messages->request = std::move(request);
  const TimePoint sent = std::chrono::steady_clock::now();
  calls_.Send(
      end,
      [messages, channel](grpc::ClientContext* context, std::function<void(grpc::Status)> ended) {
        messages->stub = proto::Voters::NewStub(channel->channel);
        messages->stub->async()->Vote(context, &messages->request, &messages->reply, std::move(ended));
      },
      [this, address, channel, sent, end, messages, done = std::move(done)](const absl::Status& status) {
        Ended(address, channel, sent, status);
        if (absl::IsUnavailable(status)) {
          asio::co_spawn(io_, Explain(address, status, end, done), Rethrow);
        } else {
          status.ok() ? done(DecodeVoteReply(messages->reply)) : done(status);
        }
      });
}

asio::awaitable<void> GrpcVoteClient::Explain(std::string address, absl::Status status, TimePoint end,
                                              Done done) {
  const std::weak_ptr<int> alive = alive_;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(address, -1);
  asio::io_context& io = io_;  // this object may be destroyed meanwhile
  const absl::StatusOr<asio::ip::tcp::endpoint> resolved = co_await Resolve(io, *endpoint, end);
  if (resolved.ok()) {
    asio::ip::tcp::socket socket(io);
    asio::steady_timer timer(io, end);
    const auto connected = co_await (socket.async_connect(*resolved, kAwait) || timer.async_wait(kAwait));
    if (connected.index() == 0 && std::get<0>(std::get<0>(connected)) == asio::error::connection_refused)
      status = absl::NotFoundError("no process listens there any more");
  }
  if (!alive.expired()) done(status);
}

void GrpcVoteClient::Ended(const std::string& address, const std::shared_ptr<Channel>& channel,
                           TimePoint sent, const absl::Status& status) {
  // A channel that has failed waits before it connects again; a new one does not. After a fault of the network, TCP repeats lost
  // packets only after a pause that may be as long as the fault, so a connection that was silent for a whole call is replaced, too,
  // unless it is so new that it may not be established on a slow link.
  const TimePoint now = std::chrono::steady_clock::now();
  const bool late = absl::IsDeadlineExceeded(status);
  if (!absl::IsUnavailable(status) && !late) channel->heard = now;
  const bool silent = late && channel->heard < sent && now - channel->created >= kPatience;
  if (!absl::IsUnavailable(status) && !silent) return;
  const auto current = channels_.find(address);
  if (current != channels_.end() && current->second == channel) channels_.erase(current);
}

}  // namespace ddprun
