#include "rendezvous/client/grpc_link.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/event.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "boost/asio/post.hpp"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/client/grpc_channel.h"
#include "rendezvous/client/link_watch.h"

namespace ddprun {
namespace {

// Time limit for sending queued messages in the destructor.
constexpr auto kCloseTimeout = std::chrono::seconds(2);

class GrpcLink final : public CoordinatorLink,
                       private grpc::ClientBidiReactor<proto::AgentMessage, proto::CoordinatorMessage> {
 public:
  GrpcLink(boost::asio::io_context& io, const std::string& address, int port, Duration welcome_limit)
      : io_(io),
        welcome_limit_(welcome_limit),
        stub_(proto::Coordinator::NewStub(MakeCoordinatorChannel(address, port))),
        timer_(io) {}

  ~GrpcLink() override {
    Close();
    if (!started_) return;
    if (!done_.WaitUntil(std::chrono::steady_clock::now() + kCloseTimeout)) context_.TryCancel();
    done_.Wait();
  }

  void Start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    started_ = true;
    stub_->async()->Attend(&context_, this);
    AddHold();  // needed to start reads and writes outside reactor callbacks; OnReadDone removes it
    StartRead(&incoming_);
    StartCall();
    watch_.Started(timer_.Now(), welcome_limit_);
    SetTimer();
  }

  void Send(const proto::AgentMessage& message) override {
    absl::MutexLock lock(&mutex_);
    if (closing_ || broken_) return;
    outbox_.push_back(message);
    if (open_ && outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  void Close() override {
    handlers_ = {};
    timer_.Set(std::nullopt, {});
    // If at least two heartbeats are unanswered, the coordinator is unlikely to read the queued messages.
    if (started_ && watch_.unanswered() > 1) context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    if (!started_ || std::exchange(closing_, true) || broken_) return;
    if (outbox_.empty()) StartWritesDone();
    ReadNext();  // The posted handler that would call ReadNext may never run.
  }

 private:
  // Runs `f` on the io_context, unless the link is destroyed first.
  template <typename F>
  void Post(F f) {
    boost::asio::post(io_, [alive = std::weak_ptr<int>(alive_), f = std::move(f)] {
      if (!alive.expired()) f();
    });
  }

  // The coordinator sends the initial metadata as soon as it has accepted the stream.
  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;  // OnDone follows
    {
      absl::MutexLock lock(&mutex_);
      open_ = true;
      if (!outbox_.empty()) StartWrite(&outbox_.front());
    }
    Post([this] { Opened(); });
  }
  // Called for the initial metadata and before the first message: gRPC calls OnReadInitialMetadataDone and the
  // first OnReadDone in either order.
  void Opened() {
    if (std::exchange(opened_, true)) return;
    if (handlers_.on_open) handlers_.on_open();
    watch_.Opened(timer_.Now(), handlers_.heartbeat_interval);
    SetTimer();
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
      Opened();
      const std::optional<LinkWatch::Answer> answer = watch_.Received(message, timer_.Now());
      SetTimer();
      if (answer && handlers_.on_answered) handlers_.on_answered(answer->sent, answer->lead_left);
      if (handlers_.on_message) handlers_.on_message(message);
      absl::MutexLock lock(&mutex_);
      ReadNext();
    });
  }
  // Called when the received message has been handled.
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
      timer_.Set(std::nullopt, {});
      if (!handlers_.on_lost) return;
      handlers_.on_lost(absl::UnavailableError(gave_up_.empty() ? cause : gave_up_));
    });
    {
      absl::MutexLock lock(&mutex_);
      broken_ = true;
    }
    done_.Set();  // must be last, because the destructor may be waiting for it
  }

  void SetTimer() {
    if (!handlers_.on_lost || !gave_up_.empty())
      return timer_.Set(std::nullopt, {});  // closed, or already cancelled by OnTimer
    timer_.Set(watch_.NextDeadline(), [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired() && handlers_.on_lost) OnTimer();
    });
  }
  void OnTimer() {
    const LinkWatch::Action action = watch_.Due(timer_.Now());
    if (const auto* give_up = std::get_if<LinkWatch::GiveUp>(&action)) {
      gave_up_ = give_up->why;
      context_.TryCancel();  // OnDone follows
    } else if (std::holds_alternative<LinkWatch::SendHeartbeat>(action)) {
      proto::AgentMessage message;
      proto::Heartbeat& heartbeat = *message.mutable_heartbeat();
      if (handlers_.heartbeat) handlers_.heartbeat(heartbeat);
      watch_.HeartbeatSent(timer_.Now());
      Send(message);
    }
    SetTimer();
  }

  boost::asio::io_context& io_;
  const Duration welcome_limit_;
  const std::unique_ptr<proto::Coordinator::Stub> stub_;
  AsioWakeTimer timer_;
  LinkWatch watch_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();  // checked by posted handlers
  Handlers handlers_;
  std::string gave_up_;  // why OnTimer cancelled the stream; empty if it did not
  bool started_ = false;
  bool opened_ = false;
  grpc::ClientContext context_;
  proto::CoordinatorMessage incoming_;  // owned by gRPC between StartRead and OnReadDone
  absl::Mutex mutex_;
  std::deque<proto::AgentMessage> outbox_ ABSL_GUARDED_BY(mutex_);  // if open_, the front is being written
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // a message is being handled; no read is in flight
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  Event done_;  // set when gRPC no longer uses this object
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeGrpcLink(boost::asio::io_context& io, const std::string& address,
                                              int port, Duration welcome_limit) {
  return std::make_unique<GrpcLink>(io, address, port, welcome_limit);
}

}  // namespace ddprun
