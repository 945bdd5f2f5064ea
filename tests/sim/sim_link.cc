#include "tests/sim/sim_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_coordinator.h"

namespace ddprun::sim {
namespace {

// As in rendezvous/client.
constexpr Duration kLongestPause = seconds(1);
constexpr Duration kWelcomeLimit = seconds(10);
constexpr int kMaxUnanswered = 4;
// As in rendezvous/server: how often the coordinator's own agent says how far its workers are.
constexpr Duration kLocalBeat = seconds(1);

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

SimLink::SimLink(Place place, Handlers handlers) : place_(place), handlers_(std::move(handlers)) {}
SimLink::~SimLink() { Close(); }

void SimLink::InAgent(std::function<void()> what) {
  in_agent_([here = std::weak_ptr<bool>(here_), what = std::move(what)] {
    if (!here.expired()) what();
  });
}

void SimLink::After(Duration d, std::function<void()> what) {
  place_.host->After(d, [this, here = std::weak_ptr<bool>(here_), what = std::move(what)] {
    if (!here.expired()) InAgent(what);
  });
}

void SimLink::Find(Duration limit, bool once) {
  once_ = once;
  if (place_.local != nullptr) {
    open_ = true;
    local_peer_ = place_.local->Attach(
        [this, here = std::weak_ptr<bool>(here_)](const std::string& bytes, bool) {
          place_.host->After(std::chrono::microseconds(10), [this, here, bytes] {
            if (!here.expired()) OnBytes(bytes);
          });
        },
        /*in_process=*/true);
    After(kLocalBeat, [this] { Heartbeat(kLocalBeat); });
    return handlers_.on_open();
  }
  find_end_ = place_.host->now() + limit;
  After(limit, [this] {
    if (open_) return;
    if (socket_) place_.tcp->Close(*socket_);
    here_.reset();
    handlers_.on_not_found("it did not answer in time");
  });
  Connect();
}

void SimLink::Connect() {
  socket_ = place_.tcp->Connect(place_.host->id(), place_.coordinator_host, kPort,
                                {.on_open =
                                     [this] {
                                       InAgent([this] {
                                         open_ = true;
                                         After(kWelcomeLimit, [this] {
                                           if (!welcomed_) Lose("it did not answer the join");
                                         });
                                         handlers_.on_open();
                                         const Duration interval = handlers_.heartbeat_interval;
                                         After(interval, [this, interval] { Heartbeat(interval); });
                                       });
                                     },
                                 .on_message = [this](const std::string& bytes) { OnBytes(bytes); },
                                 .on_end = [this](StreamEnd why) { InAgent([this, why] { OnEnd(why); }); }});
}

void SimLink::OnEnd(StreamEnd why) {
  if (open_) return Lose(std::string(ToString(why)));
  if (once_ && why == StreamEnd::kRefused) {
    here_.reset();
    return handlers_.on_not_found("nobody listens there any more");
  }
  After(pause_, [this] {
    if (!open_) Connect();
  });
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void SimLink::OnBytes(const std::string& bytes) {
  InAgent([this, bytes] {
    proto::CoordinatorMessage message;
    const TimePoint now = place_.host->now();
    if (!message.ParseFromString(bytes)) return place_.trace->Broken(now, "a message does not parse");
    if (dismissed_) {
      return place_.trace->Broken(now, absl::StrCat("after its last word the coordinator said to ",
                                                    place_.host->name(), ": ", message.ShortDebugString()));
    }
    dismissed_ = message.has_dismiss();
    OnMessage(message);
  });
}

void SimLink::OnMessage(const proto::CoordinatorMessage& message) {
  unanswered_ = 0;
  if (message.has_heard()) {
    if (sent_.empty()) return;
    const TimePoint sent = sent_.front();
    sent_.pop_front();
    return handlers_.on_answered(sent);
  }
  if (message.has_welcome()) welcomed_ = true;
  handlers_.on_message(message);
}

void SimLink::Heartbeat(Duration interval) {
  if (unanswered_ >= kMaxUnanswered) {
    return Lose(absl::StrCat("it has not answered for ", ToMillis(interval * (kMaxUnanswered + 1)), " ms"));
  }
  ++unanswered_;
  sent_.push_back(place_.host->now());
  proto::AgentMessage message;
  handlers_.heartbeat(*message.mutable_heartbeat());
  Send(message);
  After(interval, [this, interval] { Heartbeat(interval); });
}

void SimLink::Lose(const std::string& why) {
  const bool told = dismissed_;
  Close();
  if (!told) handlers_.on_lost(why);
}

void SimLink::Send(const proto::AgentMessage& message) {
  if (!open_) return;
  if (place_.local != nullptr) {
    place_.host->After(std::chrono::microseconds(10),
                       [local = place_.local, peer = local_peer_, bytes = message.SerializeAsString()] {
                         local->Receive(peer, bytes);
                       });
  } else if (socket_) {
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
  if (place_.local != nullptr) {
    place_.host->After(std::chrono::microseconds(10),
                       [local = place_.local, peer = local_peer_] { local->Detach(peer, "it hung up"); });
  } else if (socket_) {
    place_.tcp->Close(*socket_);
  }
}

}  // namespace ddprun::sim
