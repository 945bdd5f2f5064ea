#include "tests/sim/world/sim_votes.h"

#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/voters/vote_codec.h"
#include "tests/sim/world/sim_coordinator.h"

namespace ddprun::sim {
namespace {

constexpr char kRunId[] = "sim";

// Takes the number at the beginning of `bytes`, with the space that follows it.
int64_t TakeNumber(absl::string_view& bytes) {
  const size_t space = bytes.find(' ');
  int64_t number = 0;
  if (!absl::SimpleAtoi(bytes.substr(0, space), &number)) return -1;
  bytes.remove_prefix(space + 1);
  return number;
}

}  // namespace

void SimVoteClient::Stop() {
  for (const auto& [address, channel] : channels_) tcp_.Close(channel->socket);
}

void SimVoteClient::Send(const std::string& address, const VoteRequest& request, Duration limit, Done done) {
  if (observe_) observe_(request);
  const std::shared_ptr<Channel> channel = Connect(address);
  const uint64_t number = next_++;
  channel->waiting[number] = std::move(done);
  tcp_.Send(channel->socket,
            absl::StrCat(number, " ", EncodeVoteRequest(kRunId, request).SerializeAsString()));
  const TimePoint sent = host_.now();
  host_.At(sent + limit, [this, here = std::weak_ptr<bool>(here_), address, channel, number, sent] {
    if (here.expired()) return;
    in_process_([this, here, address, channel, number, sent] {
      if (here.expired()) return;
      const auto waits = channel->waiting.extract(number);
      if (waits.empty()) return;
      if (channel->heard < sent) Drop(address, channel, absl::UnavailableError("the voter is silent"));
      if (!here.expired()) waits.mapped()(absl::DeadlineExceededError("the voter does not answer"));
    });
  });
}

std::shared_ptr<SimVoteClient::Channel> SimVoteClient::Connect(const std::string& address) {
  std::shared_ptr<Channel>& channel = channels_[address];
  if (channel != nullptr) return channel;
  channel = std::make_shared<Channel>();
  int host = 0, port = 0;
  std::sscanf(address.c_str(), "%d:%d", &host, &port);
  // Runs `what` in the process.
  const auto in_process = [this, here = std::weak_ptr<bool>(here_)](std::function<void()> what) {
    if (here.expired()) return;
    in_process_([here, what = std::move(what)] {
      if (!here.expired()) what();
    });
  };
  channel->socket = tcp_.Connect(
      host_.id(), host, port + SimCoordinator::kVotePortOffset,
      {.on_message =
           [this, in_process, channel](const std::string& bytes) {
             in_process([this, channel, bytes] { OnReply(*channel, bytes); });
           },
       .on_end =
           [this, in_process, channel, address](StreamEnd end) {
             const absl::Status why = end == StreamEnd::kRefused
                                          ? absl::NotFoundError("no process listens there any more")
                                          : absl::UnavailableError("the connection has ended");
             in_process([this, channel, address, why] { Drop(address, channel, why); });
           }});
  return channel;
}

void SimVoteClient::Drop(const std::string& address, const std::shared_ptr<Channel>& channel,
                         const absl::Status& why) {
  tcp_.Close(channel->socket);
  const auto current = channels_.find(address);
  if (current != channels_.end() && current->second == channel) channels_.erase(current);
  const std::weak_ptr<bool> here = here_;
  for (auto waiting = std::exchange(channel->waiting, {}); !waiting.empty();) {
    const auto waits = waiting.extract(waiting.begin());
    waits.mapped()(why);
    if (here.expired()) return;
  }
}

void SimVoteClient::OnReply(Channel& channel, const std::string& bytes) {
  channel.heard = host_.now();
  absl::string_view rest = bytes;
  const auto waits = channel.waiting.extract(static_cast<uint64_t>(TakeNumber(rest)));
  if (waits.empty()) return;
  if (const int64_t code = TakeNumber(rest); code != 0)
    return waits.mapped()(absl::Status(static_cast<absl::StatusCode>(code), rest));
  proto::VoteReply reply;
  if (!reply.ParseFromString(std::string(rest))) {
    return waits.mapped()(absl::InternalError("the reply of a voter does not parse"));
  }
  waits.mapped()(DecodeVoteReply(reply));
}

SimVoteServer::SimVoteServer(SimHost* host, SimTcp* tcp, int port, SimTimer::InProcess in_process,
                             Answer answer)
    : host_(*host), tcp_(*tcp), port_(port + SimCoordinator::kVotePortOffset) {
  tcp_.Listen(
      host_.id(), port_,
      [this, in_process = std::move(in_process), answer = std::move(answer)](SimSocket socket, HostId) {
        sockets_.push_back(socket);
        return SimTcp::Handlers{
            .on_message =
                [this, socket, in_process, answer](const std::string& bytes) {
                  in_process([this, socket, answer, bytes] {
                    absl::string_view rest = bytes;
                    const int64_t number = TakeNumber(rest);
                    proto::VoteRequest request;
                    absl::StatusOr<proto::VoteReply> reply =
                        absl::InvalidArgumentError("the request does not parse");
                    if (request.ParseFromString(std::string(rest))) reply = answer(request);
                    tcp_.Send(socket, absl::StrCat(number, " ", static_cast<int>(reply.status().code()), " ",
                                                   reply.ok() ? reply->SerializeAsString()
                                                              : std::string(reply.status().message())));
                  });
                },
            .on_end = [this, socket](StreamEnd) { tcp_.Close(socket); }};
      });
}

void SimVoteServer::Stop() {
  tcp_.Unlisten(host_.id(), port_);
  for (const SimSocket& socket : sockets_) tcp_.Close(socket);
}

}  // namespace ddprun::sim
