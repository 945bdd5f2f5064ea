#include "rendezvous/client/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/time.h"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "proto/grpc_status.h"
#include "proto/rendezvous.grpc.pb.h"

namespace ddprun {
namespace {

// How long the last words may take to go out.
constexpr auto kCloseTimeout = std::chrono::seconds(2);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // clusters set http_proxy for other purposes
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const bool ipv6 = address.find(':') != std::string::npos;
  const std::string target =
      ipv6 ? absl::StrCat("ipv6:[", address, "]:", port) : absl::StrCat("ipv4:", address, ":", port);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

class GrpcLink final : public CoordinatorLink,
                       private grpc::ClientBidiReactor<proto::AgentMessage, proto::CoordinatorMessage> {
 public:
  GrpcLink(boost::asio::io_context& io, const std::string& address, int port)
      : io_(io),
        stub_(proto::Coordinator::NewStub(MakeChannel(address, port))),
        heartbeat_timer_(io),
        alive_(std::make_shared<int>()) {}

  ~GrpcLink() override {
    Close();
    alive_.reset();
    if (!started_) return;
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::FromChrono(kCloseTimeout)))
      context_.TryCancel();
    mutex_.Await(absl::Condition(&done_));
  }

  void Start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    started_ = true;
    stub_->async()->Attend(&context_, this);
    AddHold();  // for reads and writes that start outside of a reaction; until the stream has ended
    StartRead(&incoming_);
    StartCall();
  }

  void Send(const proto::AgentMessage& message) override {
    absl::MutexLock lock(&mutex_);
    if (closing_ || broken_) return;
    outbox_.push_back(message);
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  void Close() override {
    handlers_ = {};
    heartbeat_timer_.cancel();
    absl::MutexLock lock(&mutex_);
    if (!started_ || std::exchange(closing_, true) || broken_) return;
    if (outbox_.empty()) StartWritesDone();
    ReadNext();  // The handler that would do it may never run.
  }

 private:
  // Runs `f` on the io_context, unless the link is gone by then.
  template <typename F>
  void Post(F f) {
    boost::asio::post(io_, [alive = std::weak_ptr<int>(alive_), f = std::move(f)] {
      if (!alive.expired()) f();
    });
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      broken_ = true;
      RemoveHold();  // OnDone follows
      return;
    }
    handling_ = true;
    if (closing_) return ReadNext();
    Post([this, message = incoming_] {
      if (message.has_welcome()) StartHeartbeats(milliseconds(message.welcome().heartbeat_ms()));
      if (handlers_.on_message) handlers_.on_message(message);
      absl::MutexLock lock(&mutex_);
      ReadNext();
    });
  }
  // The message that came has been taken care of.
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(handling_, false)) StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      broken_ = true;
      return;
    }
    outbox_.pop_front();
    if (!outbox_.empty()) {
      StartWrite(&outbox_.front());
    } else if (closing_) {
      StartWritesDone();
    }
  }
  void OnDone(const grpc::Status& status) override {
    const std::string cause = status.ok() ? "it hung up" : status.error_message();
    Post([this, cause] {
      heartbeat_timer_.cancel();
      if (handlers_.on_lost) handlers_.on_lost(absl::UnavailableError(cause));
    });
    absl::MutexLock lock(&mutex_);
    broken_ = true;
    done_ = true;
  }

  void StartHeartbeats(Duration interval) {
    if (interval <= Duration::zero()) return;
    heartbeat_timer_.expires_after(interval);
    heartbeat_timer_.async_wait([this, interval](const boost::system::error_code& error) {
      if (error) return;
      proto::AgentMessage message;
      message.mutable_heartbeat();
      Send(message);
      StartHeartbeats(interval);
    });
  }

  boost::asio::io_context& io_;
  const std::unique_ptr<proto::Coordinator::Stub> stub_;
  boost::asio::steady_timer heartbeat_timer_;
  std::shared_ptr<int> alive_;
  Handlers handlers_;
  bool started_ = false;
  grpc::ClientContext context_;
  proto::CoordinatorMessage incoming_;  // gRPC's, between StartRead and OnReadDone
  absl::Mutex mutex_;
  std::deque<proto::AgentMessage> outbox_ ABSL_GUARDED_BY(mutex_);  // front: being written
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // a message came, the next is not asked for yet
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port) {
  return std::make_unique<GrpcLink>(io, address, port);
}

}  // namespace ddprun
