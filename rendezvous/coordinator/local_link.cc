#include "rendezvous/coordinator/local_link.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/time.h"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "rendezvous/client/link_watch.h"

namespace ddprun {
namespace {

// The interval between heartbeats of an agent without a lease. They only report progress.
constexpr Duration kBeat = seconds(1);

// Owned jointly by the link and by each pending handler, so that handlers may run after the link is
// destroyed.
class LocalPeer : public AgentPeer, public std::enable_shared_from_this<LocalPeer> {
 public:
  LocalPeer(boost::asio::io_context& io, Coordinator* coordinator, std::string address)
      : io_(io), coordinator_(coordinator->weak()), address_(std::move(address)), timer_(io) {}

  void Start(CoordinatorLink::Handlers handlers) {
    handlers_ = std::move(handlers);
    if (const auto coordinator = coordinator_.lock()) id_ = coordinator->Attach(this);
    Post([this] {
      if (handlers_.on_open) handlers_.on_open();
    });
    if (handlers_.heartbeat) BeatLater();
  }
  void SendToCoordinator(proto::AgentMessage message) {
    PostTo([this, message = std::move(message)](Coordinator& c) { c.Receive(id_, message); });
  }
  void Close() {
    handlers_ = {};
    timer_.cancel();
    PostTo([this](Coordinator& c) { c.Detach(id_, "it hung up"); });
  }

  void Send(SharedMessage message) override {
    Post([this, message = std::move(message)] {
      if (!handlers_.on_message) return;
      const std::optional<LinkWatch::Answer> answer =
          watch_.Received(*message, std::chrono::steady_clock::now());
      if (message->welcome().heartbeat_ms() > 0) {
        interval_ = milliseconds(message->welcome().heartbeat_ms());
        BeatLater();
      }
      if (answer && interval_ && handlers_.on_answered)
        handlers_.on_answered(answer->sent, answer->lead_left);
      if (handlers_.on_message) handlers_.on_message(*message);
    });
  }
  void End() override {
    Post([this] {
      timer_.cancel();
      const auto on_lost = std::exchange(handlers_, {}).on_lost;
      if (on_lost) on_lost(absl::UnavailableError("the coordinator in this process hung up"));
    });
  }
  std::string address() const override { return address_; }
  bool in_process() const override { return true; }

 private:
  void BeatLater() {
    const TimePoint now = std::chrono::steady_clock::now();
    timer_.expires_at(interval_ ? now + *interval_ : NextTick(now, kBeat));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || !self->handlers_.on_message) return;  // closed
      proto::AgentMessage message;
      proto::Heartbeat& heartbeat = *message.mutable_heartbeat();
      if (self->handlers_.heartbeat) self->handlers_.heartbeat(heartbeat);
      self->watch_.HeartbeatSent(std::chrono::steady_clock::now());
      self->SendToCoordinator(std::move(message));
      self->BeatLater();
    });
  }
  template <typename F>
  void Post(F f) {
    boost::asio::post(io_, [self = shared_from_this(), f = std::move(f)] { f(); });
  }
  template <typename F>
  void PostTo(F f) {
    Post([this, f = std::move(f)] {
      if (const auto coordinator = coordinator_.lock()) f(*coordinator);
    });
  }

  boost::asio::io_context& io_;
  const std::weak_ptr<Coordinator> coordinator_;
  const std::string address_;
  CoordinatorLink::Handlers handlers_;
  PeerId id_ = 0;
  boost::asio::steady_timer timer_;
  std::optional<Duration> interval_;  // between heartbeats, as the Welcome requests
  LinkWatch watch_;                   // only finds the heartbeats that are answered
};

class LocalLink : public CoordinatorLink {
 public:
  explicit LocalLink(std::shared_ptr<LocalPeer> peer) : peer_(std::move(peer)) {}
  ~LocalLink() override { Close(); }
  void Start(Handlers handlers) override { peer_->Start(std::move(handlers)); }
  void Send(const proto::AgentMessage& message) override { peer_->SendToCoordinator(message); }
  void Close() override {
    if (!std::exchange(closed_, true)) peer_->Close();
  }

 private:
  const std::shared_ptr<LocalPeer> peer_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeLocalLink(boost::asio::io_context& io, Coordinator* coordinator,
                                               std::string address) {
  return std::make_unique<LocalLink>(std::make_shared<LocalPeer>(io, coordinator, std::move(address)));
}

}  // namespace ddprun
