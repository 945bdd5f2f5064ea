#include "rendezvous/coordinator/local_link.h"

#include <string>
#include <utility>

#include "base/time.h"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"

namespace ddprun {
namespace {

// The interval between heartbeats. The heartbeats of this agent only report progress, because the agent has
// no lease.
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
      if (handlers_.on_message) handlers_.on_message(*message);
    });
  }
  void End() override {}
  std::string address() const override { return address_; }
  bool in_process() const override { return true; }

 private:
  void BeatLater() {
    timer_.expires_at(NextTick(std::chrono::steady_clock::now(), kBeat));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || !self->handlers_.heartbeat) return;
      proto::AgentMessage message;
      self->handlers_.heartbeat(*message.mutable_heartbeat());
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
