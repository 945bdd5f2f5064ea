#include "rendezvous/grpc/grpc_port.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/post.hpp"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/store_request.h"
#include "rendezvous/grpc/control_service.h"
#include "rendezvous/grpc/store_service.h"

namespace ddprun {
namespace {

// Maximum number of unsent messages to an agent. An agent that reads never falls this far behind.
constexpr size_t kMaxUnsent = 1000;
// Maximum size of a message from an agent. Valid messages are much smaller.
constexpr size_t kMaxAgentMessageBytes = 1 << 20;
constexpr int kKeepaliveMillis = 20'000;
// Maximum number of concurrent calls on one connection. A store client may have many waits in flight.
constexpr int kMaxCalls = 1000;
// Allowance per message for the other bytes on the connection: headers, window updates and pings.
constexpr uint64_t kOverheadBytes = 1 << 10;

// An agent's stream. gRPC calls the On... methods on gRPC's threads; the coordinator calls the AgentPeer
// methods on the io_context. OnDone posts a handler that owns the stream, so the stream is deleted whether
// that handler runs or is destroyed with the io_context. Handlers posted earlier run first or are destroyed
// without running.
class AgentStream final : public grpc::ServerBidiReactor<proto::AgentMessage, proto::CoordinatorMessage>,
                          public AgentPeer {
 public:
  AgentStream(boost::asio::io_context& io, std::weak_ptr<Coordinator> coordinator,
              PartialMessageLimiter* half_messages, grpc::CallbackServerContext* context)
      : io_(io),
        coordinator_(std::move(coordinator)),
        partial_messages_(*half_messages),
        context_(context),
        peer_(context->peer()),
        address_(PeerAddress(peer_)) {
    // Notifies the agent that the stream is accepted. The agent then sends its join.
    StartSendInitialMetadata();
    Post([this](Coordinator& c) {
      id_ = c.Attach(this);
      ReadNext();
    });
  }

  // AgentPeer
  void Send(SharedMessage message) override {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (outbox_.size() >= kMaxUnsent) {
      context_->TryCancel();  // The agent does not read. The cancellation makes the pending write fail.
      return;
    }
    outbox_.push_back(std::move(message));
    if (outbox_.size() == 1) StartWrite(outbox_.front().get());
  }
  void End() override {
    absl::MutexLock lock(&mutex_);
    EndLocked(grpc::Status::OK);
  }
  std::string address() const override { return address_; }
  bool in_process() const override { return false; }

  // ServerBidiReactor
  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mutex_);
      // The agent half-closed the stream, or the stream broke. OnDone notifies the coordinator.
      EndLocked(grpc::Status::OK);
      return;
    }
    const size_t size = incoming_.ByteSizeLong();
    partial_messages_.CameWhole(peer_, kOverheadBytes + size);
    if (size > kMaxAgentMessageBytes) {
      absl::MutexLock lock(&mutex_);
      EndLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             absl::StrCat("an agent sent a message of ", size, " bytes; at most ",
                                          kMaxAgentMessageBytes, " are allowed")));
      return;
    }
    Post([this](Coordinator& c) {
      c.Receive(id_, incoming_);
      ReadNext();
    });
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      // The connection is broken, so no more messages can be sent.
      outbox_.clear();
      FinishLocked();
      return;
    }
    outbox_.pop_front();
    if (!outbox_.empty()) {
      StartWrite(outbox_.front().get());
    } else if (ending_) {
      FinishLocked();
    }
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    canceled_ = true;
    EndLocked(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection broke"));
  }
  void OnDone() override {
    absl::string_view reason;
    {
      absl::MutexLock lock(&mutex_);
      reason = canceled_ ? "its connection broke" : "it hung up";
    }
    boost::asio::post(io_, [self = std::unique_ptr<AgentStream>(this), reason] {
      if (const auto coordinator = self->coordinator_.lock()) coordinator->Detach(self->id_, reason);
    });
  }

 private:
  // Runs `f` on the io_context, unless the coordinator is destroyed first.
  template <typename F>
  void Post(F f) {
    boost::asio::post(io_, [this, f = std::move(f)] {
      if (const auto coordinator = coordinator_.lock()) f(*coordinator);
    });
  }
  // Does nothing if the stream has finished, because gRPC may have released the underlying call.
  void ReadNext() {
    absl::MutexLock lock(&mutex_);
    if (!finished_) StartRead(&incoming_);
  }
  // Finishes the stream when the outbox has been sent. Only the status of the first call is used.
  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ending_) ending_ = status;
    if (outbox_.empty()) FinishLocked();
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(ending_.value_or(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection broke")));
  }

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  PartialMessageLimiter& partial_messages_;     // owned by the port; valid until OnDone
  grpc::CallbackServerContext* const context_;  // owned by gRPC; valid until OnDone
  const std::string peer_;
  const std::string address_;
  PeerId id_ = 0;                 // io_context only; set before the first read
  proto::AgentMessage incoming_;  // in use from StartRead until the message has been handled
  absl::Mutex mutex_;
  std::deque<SharedMessage> outbox_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool canceled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

class GrpcPort::Service final : public proto::Coordinator::CallbackService {
 public:
  Service(boost::asio::io_context& io, std::weak_ptr<Coordinator> coordinator,
          PartialMessageLimiter* half_messages)
      : io_(io), coordinator_(std::move(coordinator)), partial_messages_(half_messages) {}

  grpc::ServerBidiReactor<proto::AgentMessage, proto::CoordinatorMessage>* Attend(
      grpc::CallbackServerContext* context) override {
    return new AgentStream(io_, coordinator_, partial_messages_, context);
  }

 private:
  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  PartialMessageLimiter* const partial_messages_;
};

struct GrpcPort::Server {
  Server(boost::asio::io_context& io, Coordinator* coordinator, PartialMessageLimiter* half_messages)
      : service(io, coordinator->weak(), half_messages),
        control(io, coordinator->weak()),
        voter(io,
              [half_messages](const std::string& peer, uint64_t bytes) {
                half_messages->CameWhole(peer, kOverheadBytes + bytes);
              }),
        store(io, kMaxBytesOfCalls, [half_messages](absl::string_view peer, uint64_t bytes) {
          half_messages->CameWhole(peer, kOverheadBytes + bytes);
        }) {
    grpc::ServerBuilder builder;
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    builder.RegisterService(&control);
    builder.RegisterService(&voter);
    builder.RegisterService(&store);
    builder.SetMaxReceiveMessageSize(kMaxStoreMessageBytes);
    // Keepalive closes the sockets of silent nodes. Leases do not depend on keepalive.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMillis);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMillis);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCalls);
    server = builder.BuildAndStart();
  }

  Service service;
  ControlService control;
  VoterService voter;
  StoreService store;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

GrpcPort::GrpcPort(boost::asio::io_context& io, Coordinator* coordinator,
                   PartialMessageLimiter::OnError on_error, const PartialMessageLimits& limits)
    : io_(io), coordinator_(coordinator), partial_messages_(io, limits, std::move(on_error)) {}

GrpcPort::~GrpcPort() {
  if (server_ == nullptr) return;
  server_->control.EndAll();
  server_->voter.EndAll();
  server_->store.EndAll("the coordinator is ending");
  server_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

void GrpcPort::ServeStore(StoreHub* store) {
  store_ = store;
  if (server_ != nullptr) server_->store.Use(store);
}

void GrpcPort::EndStore(const std::string& why) {
  ServeStore(nullptr);
  if (server_ != nullptr) server_->store.EndAll(why);
}

void GrpcPort::ServeVotes(AnswerVote answer) {
  answer_vote_ = std::move(answer);
  if (server_ != nullptr) server_->voter.Use(answer_vote_);
}

void GrpcPort::Adopt(int fd) {
  if (server_ == nullptr) {
    server_ = std::make_unique<Server>(io_, coordinator_, &partial_messages_);
    server_->store.Use(store_);
    server_->voter.Use(answer_vote_);
  }
  // gRPC sets TCP_NODELAY only on connections that it accepts itself. Without TCP_NODELAY, an order is
  // delayed by up to 40 ms until the previous order has been acknowledged.
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  partial_messages_.Watch(fd);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = -1;
  connection.fd = fd;
  server_->acceptor->HandleNewConnection(&connection);
}

}  // namespace ddprun
