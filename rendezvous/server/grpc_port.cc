#include "rendezvous/server/grpc_port.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/post.hpp"
#include "proto/grpc_status.h"
#include "proto/rendezvous.grpc.pb.h"

namespace ddprun {
namespace {

// "ipv4:10.0.0.7:41234" or "ipv6:%5B::1%5D:41234" as gRPC names a peer -> "10.0.0.7", "::1".
std::string PeerAddress(absl::string_view peer) {
  absl::ConsumePrefix(&peer, "ipv4:");
  absl::ConsumePrefix(&peer, "ipv6:");
  if (const size_t colon = peer.rfind(':'); colon != absl::string_view::npos) peer = peer.substr(0, colon);
  for (const absl::string_view open : {"[", "%5B"}) absl::ConsumePrefix(&peer, open);
  for (const absl::string_view close : {"]", "%5D"}) absl::ConsumeSuffix(&peer, close);
  // A dual-stack socket shows IPv4 peers as mapped addresses, which a worker of another node cannot use.
  absl::ConsumePrefix(&peer, "::ffff:");
  return std::string(peer);
}

// One agent's stream. gRPC calls the On... methods from its threads, the coordinator the AgentPeer ones from
// the io_context; it deletes itself once both are through with it.
class AgentStream final : public grpc::ServerBidiReactor<proto::AgentMessage, proto::CoordinatorMessage>,
                          public AgentPeer {
 public:
  AgentStream(boost::asio::io_context& io, Coordinator* coordinator, std::string address)
      : io_(io), coordinator_(coordinator), address_(std::move(address)) {
    boost::asio::post(io_, [this] {
      id_ = coordinator_->Attach(this);
      ReadNext();
    });
  }

  // AgentPeer
  void Send(const proto::CoordinatorMessage& message) override {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    outbox_.push_back(message);
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }
  void End(const absl::Status& why) override {
    absl::MutexLock lock(&mutex_);
    ending_ = ToGrpc(why);
    if (outbox_.empty()) FinishLocked();
  }
  std::string address() const override { return address_; }
  bool in_process() const override { return false; }

  // ServerBidiReactor
  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mutex_);
      // Half-closed by the agent, or broken; OnDone tells the coordinator.
      if (!ending_) ending_ = grpc::Status::OK;
      if (outbox_.empty()) FinishLocked();
      return;
    }
    boost::asio::post(io_, [this] {
      coordinator_->Receive(*id_, incoming_);
      ReadNext();
    });
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      // The connection is broken; nothing more can be said.
      outbox_.clear();
      FinishLocked();
      return;
    }
    outbox_.pop_front();
    if (!outbox_.empty()) {
      StartWrite(&outbox_.front());
    } else if (ending_) {
      FinishLocked();
    }
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    canceled_ = true;
    if (outbox_.empty()) FinishLocked();
  }
  void OnDone() override {
    boost::asio::post(io_, [this] {
      coordinator_->Detach(*id_, canceled_ ? "its connection broke" : "it hung up");
      delete this;
    });
  }

 private:
  // Not once the stream is finished: gRPC may be through with it then.
  void ReadNext() {
    absl::MutexLock lock(&mutex_);
    if (!finished_) StartRead(&incoming_);
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(ending_.value_or(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection broke")));
  }

  boost::asio::io_context& io_;
  Coordinator* const coordinator_;
  const std::string address_;
  std::optional<Coordinator::PeerId> id_;  // io_context only; set before anything is read
  proto::AgentMessage incoming_;           // between StartRead and the handler of its message
  absl::Mutex mutex_;
  std::deque<proto::CoordinatorMessage> outbox_ ABSL_GUARDED_BY(mutex_);  // front: being written
  std::optional<grpc::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> canceled_ = false;
};

}  // namespace

class GrpcPort::Service final : public proto::Coordinator::CallbackService {
 public:
  Service(boost::asio::io_context& io, Coordinator* coordinator) : io_(io), coordinator_(coordinator) {}

  grpc::ServerBidiReactor<proto::AgentMessage, proto::CoordinatorMessage>* Attend(
      grpc::CallbackServerContext* context) override {
    return new AgentStream(io_, coordinator_, PeerAddress(context->peer()));
  }

 private:
  boost::asio::io_context& io_;
  Coordinator* const coordinator_;
};

struct GrpcPort::Server {
  Server(boost::asio::io_context& io, Coordinator* coordinator) : service(io, coordinator) {
    grpc::ServerBuilder builder;
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    // A message of an agent is small; a large one is garbage.
    builder.SetMaxReceiveMessageSize(1 << 20);
    server = builder.BuildAndStart();
  }

  Service service;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

GrpcPort::GrpcPort(boost::asio::io_context& io, Coordinator* coordinator)
    : io_(io), coordinator_(coordinator) {}

GrpcPort::~GrpcPort() {
  if (server_ == nullptr) return;
  // What the streams still post finds a stopped io_context; Shutdown needs their OnDone only.
  server_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  io_.restart();
  io_.poll();
}

void GrpcPort::Adopt(int fd) {
  if (server_ == nullptr) server_ = std::make_unique<Server>(io_, coordinator_);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = -1;
  connection.fd = fd;
  server_->acceptor->HandleNewConnection(&connection);
}

}  // namespace ddprun
