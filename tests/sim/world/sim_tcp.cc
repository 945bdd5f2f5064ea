#include "tests/sim/world/sim_tcp.h"

#include <algorithm>
#include <vector>

namespace ddprun::sim {
namespace {

// These values are those of Linux.
constexpr Duration kFirstRto = milliseconds(200);
constexpr Duration kHelloRto = seconds(1);
constexpr Duration kMaxRto = seconds(120);
// A connection times out after this time without an acknowledgement.
constexpr Duration kUserTimeout = seconds(60);

}  // namespace

HostId SimTcp::AddHost() {
  const auto id = std::make_shared<HostId>();
  *id = network_->AddHost([this, id](const Packet& packet) { Receive(*id, packet); });
  return *id;
}

SimTcp::EndPtr SimTcp::Find(SimSocket socket) const {
  const auto it = ends_.find({socket.host, socket.connection});
  return it == ends_.end() ? nullptr : it->second;
}

SimSocket SimTcp::Connect(HostId from, HostId to, int port, Handlers handlers) {
  const auto end = std::make_shared<End>();
  end->socket = {from, next_connection_++};
  end->peer = to;
  end->port = port;
  end->handlers = std::move(handlers);
  end->rto = kHelloRto;
  ends_[{from, end->socket.connection}] = end;
  Push(end, "", false);
  return end->socket;
}

void SimTcp::Send(SimSocket socket, std::string message) {
  const EndPtr end = Find(socket);
  if (end != nullptr && !end->fin_sent) Push(end, std::move(message), false);
}

void SimTcp::Shutdown(SimSocket socket) {
  const EndPtr end = Find(socket);
  if (end == nullptr || end->fin_sent) return;
  end->fin_sent = true;
  Push(end, "", true);
}

void SimTcp::Close(SimSocket socket) {
  const EndPtr end = Find(socket);
  if (end == nullptr) return;
  end->closed = true;
  end->handlers = {};
  if (!end->open) return Reset(socket);
  Shutdown(socket);
  MaybeForget(end);
}

void SimTcp::Reset(SimSocket socket) {
  const EndPtr end = Find(socket);
  if (end == nullptr) return;
  network_->Send(
      {.from = socket.host, .to = end->peer, .connection = socket.connection, .kind = Packet::Kind::kReset});
  Forget(end);
}

void SimTcp::PowerOff(HostId host) {
  network_->SetUp(host, false);
  std::vector<EndPtr> gone;
  for (auto it = ends_.lower_bound({host, 0}); it != ends_.end() && it->first.first == host; ++it) {
    gone.push_back(it->second);
  }
  for (const EndPtr& end : gone) Forget(end);
  const auto first = listeners_.lower_bound({host, 0});
  listeners_.erase(first, listeners_.lower_bound({host + 1, 0}));
}

void SimTcp::Push(const EndPtr& end, std::string payload, bool fin) {
  end->unacked.push_back({end->next_seq++, fin, std::move(payload), clock_->now()});
  // Only the hello is sent until the peer has answered.
  if (end->open || end->unacked.size() == 1) Transmit(*end, end->unacked.back());
  if (end->unacked.size() == 1) end->rto_end = clock_->now() + end->rto;
  SetTimer(end);
}

void SimTcp::Transmit(const End& end, const Segment& segment) {
  network_->Send({.from = end.socket.host,
                  .to = end.peer,
                  .connection = end.socket.connection,
                  .kind = segment.seq == 0 ? Packet::Kind::kHello : Packet::Kind::kData,
                  .port = end.port,
                  .seq = segment.seq,
                  .ack = end.expected,
                  .fin = segment.fin,
                  .payload = segment.payload});
}

void SimTcp::SendAck(const End& end) {
  network_->Send({.from = end.socket.host,
                  .to = end.peer,
                  .connection = end.socket.connection,
                  .kind = Packet::Kind::kAck,
                  .ack = end.expected});
}

void SimTcp::Receive(HostId host, const Packet& packet) {
  const EndPtr end = Find({host, packet.connection});
  if (end == nullptr) {
    if (packet.kind == Packet::Kind::kHello && packet.port > 0) return OnHello(host, packet);
    if (packet.kind == Packet::Kind::kReset) return;
    return network_->Send(
        {.from = host, .to = packet.from, .connection = packet.connection, .kind = Packet::Kind::kReset});
  }
  if (packet.kind == Packet::Kind::kReset) {
    return Finish(end, end->port > 0 ? StreamEnd::kRefused : StreamEnd::kReset);
  }
  // A connecting end accepts only the answer to its hello.
  if (end->port > 0 && packet.kind != Packet::Kind::kHello) return;
  OnAck(end, packet.ack);
  if (!end->dead && packet.kind != Packet::Kind::kAck) OnData(end, packet);
}

void SimTcp::OnHello(HostId host, const Packet& packet) {
  if (!listeners_.contains({host, packet.port})) {
    return network_->Send(
        {.from = host, .to = packet.from, .connection = packet.connection, .kind = Packet::Kind::kReset});
  }
  const auto end = std::make_shared<End>();
  end->socket = {host, packet.connection};
  end->peer = packet.from;
  end->port_here = packet.port;
  end->expected = 1;
  end->rto = kHelloRto;
  ends_[{host, packet.connection}] = end;
  Push(end, "", false);
}

void SimTcp::OnAck(const EndPtr& end, uint64_t ack) {
  bool progress = false;
  while (!end->unacked.empty() && end->unacked.front().seq < ack) {
    end->unacked.pop_front();
    progress = true;
  }
  if (!progress) return;
  end->rto = kFirstRto;
  end->rto_end = clock_->now() + end->rto;
  if (!end->unacked.empty() && end->unacked.front().lost) {
    end->unacked.front().lost = false;
    Transmit(*end, end->unacked.front());
  }
  SetTimer(end);
  if (!end->open && end->port_here > 0) {  // The peer has acknowledged this side's hello.
    const auto listener = listeners_.find({end->socket.host, end->port_here});
    if (listener == listeners_.end()) return Reset(end->socket);
    end->open = true;
    end->handlers = Accept(listener->second)(end->socket, end->peer);
  }
  MaybeForget(end);
}

void SimTcp::OnData(const EndPtr& end, const Packet& packet) {
  if (packet.seq > end->expected) end->ahead[packet.seq] = packet;
  if (packet.seq != end->expected) return SendAck(*end);
  if (packet.kind == Packet::Kind::kHello) {  // the answer to this side's hello
    end->expected = 1;
    end->port = 0;
    end->open = true;
    SendAck(*end);
    for (const Segment& segment : end->unacked) Transmit(*end, segment);
    if (end->handlers.on_open) std::function<void()>(end->handlers.on_open)();
  } else {
    end->ahead[packet.seq] = packet;
    end->expected += 1;
    while (end->ahead.contains(end->expected)) end->expected += 1;
    if (end->closed && !packet.fin) return Reset(end->socket);  // The program no longer reads.
    SendAck(*end);
  }
  while (!end->dead && !end->ahead.empty() && end->ahead.begin()->first < end->expected) {
    const Packet next = std::move(end->ahead.extract(end->ahead.begin()).mapped());
    if (next.fin) {
      end->fin_received = true;
      if (const auto on_end = std::exchange(end->handlers, {}).on_end) on_end(StreamEnd::kHungUp);
    } else if (end->handlers.on_message) {
      std::function<void(const std::string&)>(end->handlers.on_message)(next.payload);
    }
  }
  if (!end->dead) MaybeForget(end);
}

void SimTcp::SetTimer(const EndPtr& end) {
  if (end->dead || end->unacked.empty()) return;
  if (end->timer_at && *end->timer_at <= end->rto_end) return;
  end->timer_at = end->rto_end;
  clock_->At(end->rto_end, [this, end, at = end->rto_end] {
    if (end->timer_at != at) return;
    end->timer_at.reset();
    OnTimer(end);
  });
}

void SimTcp::OnTimer(const EndPtr& end) {
  if (end->dead || end->unacked.empty()) return;
  if (clock_->now() >= end->rto_end) {
    if (clock_->now() - end->unacked.front().first_sent >= kUserTimeout) {
      return Finish(end, StreamEnd::kTimedOut);
    }
    for (Segment& segment : end->unacked) segment.lost = true;
    end->unacked.front().lost = false;
    Transmit(*end, end->unacked.front());
    end->rto = std::min(end->rto * 2, kMaxRto);
    end->rto_end = clock_->now() + end->rto;
  }
  SetTimer(end);
}

void SimTcp::MaybeForget(const EndPtr& end) {
  if (end->fin_sent && end->unacked.empty() && (end->fin_received || end->closed)) Forget(end);
}

void SimTcp::Forget(const EndPtr& end) {
  if (std::exchange(end->dead, true)) return;
  ends_.erase({end->socket.host, end->socket.connection});
}

void SimTcp::Finish(const EndPtr& end, StreamEnd why) {
  Forget(end);
  if (const auto on_end = std::exchange(end->handlers, {}).on_end) on_end(why);
}

}  // namespace ddprun::sim
