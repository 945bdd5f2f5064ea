#include "tests/sim/world/sim_link.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/world/sim_coordinator.h"

namespace ddprun::sim {
namespace {

// The longest retry pause of rendezvous/client/find_coordinator.cc.
constexpr Duration kLongestPause = seconds(1);
// The heartbeat interval of rendezvous/coordinator/local_link.cc.
constexpr Duration kLocalBeat = seconds(1);
// Delay between two handlers of one process.
constexpr Duration kPost = std::chrono::microseconds(10);

constexpr absl::string_view ToString(StreamEnd end) {
  switch (end) {
    case StreamEnd::kRefused:
      return "connection refused";
    case StreamEnd::kReset:
      return "connection reset";
    case StreamEnd::kTimedOut:
      return "connection timed out";
    case StreamEnd::kHungUp:
      return "it hung up";
  }
  return "?";
}

}  // namespace

SimLink::SimLink(Place place)
    : place_(std::move(place)),
      timer_(place_.host, place_.trace, [this](std::function<void()> what) { InAgent(std::move(what)); }) {}
SimLink::~SimLink() { Close(); }

void SimLink::InAgent(std::function<void()> what) {
  place_.in_agent([here = std::weak_ptr<bool>(here_), what = std::move(what)] {
    if (!here.expired()) what();
  });
}

void SimLink::After(Duration d, std::function<void()> what) {
  place_.host->After(d, [this, here = std::weak_ptr<bool>(here_), what = std::move(what)] {
    if (!here.expired()) InAgent(what);
  });
}

void SimLink::Find(Duration limit, bool once, std::function<void(const absl::Status&)> done) {
  found_ = std::move(done);
  once_ = once;
  // On a rejoin, the wait for the Welcome counts toward the limit of the search.
  find_end_ = place_.host->now() + (once ? limit : std::max(limit, LinkWatch::kWelcomeLimit));
  if (place_.local != nullptr) return After(Duration(0), [this] { Found(absl::OkStatus()); });
  After(limit, [this] {
    if (found_) Found(absl::UnavailableError("it did not answer in time"));
  });
  Connect();
}

void SimLink::Connect() {
  const int attempt = ++attempt_;
  // Runs `what` in the agent, unless this attempt has ended.
  const auto in_agent = [this, attempt](std::function<void()> what) {
    InAgent([this, attempt, what = std::move(what)] {
      if (attempt == attempt_) what();
    });
  };
  socket_ = place_.tcp->Connect(
      place_.host->id(), place_.coordinator_host, place_.port,
      {.on_open = [this, in_agent] { in_agent([this] { Found(absl::OkStatus()); }); },
       .on_message = [this,
                      in_agent](const std::string& bytes) { in_agent([this, bytes] { OnBytes(bytes); }); },
       .on_end = [this, in_agent](StreamEnd why) { in_agent([this, why] { OnEnd(why); }); }});
  After(connect_timeout_, [this, attempt] {
    if (open_ || attempt != attempt_) return;
    place_.tcp->Close(*socket_);
    connect_timeout_ *= 2;
    OnEnd(StreamEnd::kTimedOut);
  });
}

void SimLink::Found(const absl::Status& status) {
  open_ = status.ok();
  if (!open_) Close();
  std::exchange(found_, nullptr)(status);
}

void SimLink::OnEnd(StreamEnd why) {
  if (open_) return Lose(std::string(ToString(why)));
  if (once_ && why == StreamEnd::kRefused) {
    return Found(absl::UnavailableError("the connection was refused"));
  }
  ++attempt_;
  After(pause_, [this] {
    if (!open_) Connect();
  });
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void SimLink::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (place_.local != nullptr) {
    local_peer_ = place_.local->Attach(
        [this, here = std::weak_ptr<bool>(here_)](const std::string& bytes, bool) {
          place_.host->After(kPost, [this, here, bytes] {
            if (!here.expired()) InAgent([this, bytes] { OnBytes(bytes); });
          });
        },
        /*in_process=*/true,
        [this, here = std::weak_ptr<bool>(here_)] {
          place_.host->After(kPost, [this, here] {
            if (!here.expired()) InAgent([this] { Lose("the coordinator in this process hung up"); });
          });
        });
    After(Duration(0), [this] { handlers_.on_open(); });
    local_interval_ = kLocalBeat;
    return After(kLocalBeat, [this] { LocalHeartbeat(0); });
  }
  watch_.Started(timer_.Now(), std::max(find_end_ - timer_.Now(), Duration(0)));
  SetTimer();
  After(Duration(0), [this] {
    handlers_.on_open();
    watch_.Opened(timer_.Now(), handlers_.heartbeat_interval);
    SetTimer();
  });
}

void SimLink::OnBytes(const std::string& bytes) {
  proto::CoordinatorMessage message;
  const TimePoint now = place_.host->sim_now();
  if (!message.ParseFromString(bytes)) return place_.trace->Broken(now, "a message does not parse");
  if (dismissed_) {
    return place_.trace->Broken(now, absl::StrCat("the coordinator sent a message after Dismiss to ",
                                                  place_.host->name(), ": ", message.ShortDebugString()));
  }
  dismissed_ = message.has_dismiss();
  const std::optional<LinkWatch::Answer> answer = watch_.Received(message, timer_.Now());
  if (place_.local == nullptr) {
    SetTimer();
  } else if (message.welcome().heartbeat_ms() > 0) {
    local_interval_ = milliseconds(message.welcome().heartbeat_ms());
    After(local_interval_, [this, beat = ++local_beat_] { LocalHeartbeat(beat); });
  }
  if (answer) handlers_.on_answered(answer->sent, answer->lead_left);
  place_.observe(message);
  handlers_.on_message(message);
}

void SimLink::SetTimer() {
  timer_.Set(watch_.NextDeadline(), [this] { OnTimer(); });
}

void SimLink::OnTimer() {
  const LinkWatch::Action action = watch_.Due(timer_.Now());
  if (const auto* give_up = std::get_if<LinkWatch::GiveUp>(&action)) return Lose(give_up->why);
  if (std::holds_alternative<LinkWatch::SendHeartbeat>(action)) SendHeartbeat();
  SetTimer();
}

void SimLink::LocalHeartbeat(uint64_t beat) {
  if (beat != local_beat_) return;
  SendHeartbeat();
  After(local_interval_, [this, beat] { LocalHeartbeat(beat); });
}

void SimLink::SendHeartbeat() {
  proto::AgentMessage message;
  handlers_.heartbeat(*message.mutable_heartbeat());
  watch_.HeartbeatSent(timer_.Now());
  Send(message);
}

void SimLink::Lose(const std::string& why) {
  Close();
  handlers_.on_lost(absl::UnavailableError(why));
}

void SimLink::Send(const proto::AgentMessage& message) {
  place_.observe_sent(message);
  if (place_.local != nullptr) {
    place_.host->After(kPost, [local = place_.local, peer = local_peer_,
                               bytes = message.SerializeAsString()] { local->Receive(peer, bytes); });
  } else {
    place_.tcp->Send(*socket_, message.SerializeAsString());
  }
}

bool SimLink::Reset() {
  if (here_ == nullptr || !open_ || !socket_) return false;
  place_.tcp->Reset(*socket_);
  InAgent([this] { OnEnd(StreamEnd::kReset); });
  return true;
}

void SimLink::Close() {
  if (here_ == nullptr) return;
  here_.reset();
  timer_.Set(std::nullopt, {});
  if (place_.local != nullptr) {
    place_.host->After(kPost,
                       [local = place_.local, peer = local_peer_] { local->Detach(peer, "it hung up"); });
  } else if (socket_) {
    place_.tcp->Close(*socket_);
  }
}

}  // namespace ddprun::sim
