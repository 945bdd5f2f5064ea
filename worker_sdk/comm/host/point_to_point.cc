#include "worker_sdk/comm/host/point_to_point.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/point_to_point_message.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/ring_channel.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Steps at the start of a message: a small message and a ring's worth of a large one are on their way at once.
constexpr int kMaxStartSteps = 4;
// When a connection breaks, the monitor reports the cause. If it reports none within this time, the peer is assumed to
// be the cause.
constexpr Duration kExplanationTimeout = milliseconds(300);

}  // namespace

PointToPoint::PointToPoint(const Topology& topology, const Self& self, Segment* segment, Monitor* monitor,
                           std::optional<Door> door, std::function<void(const Status&)> ended)
    : topology_(topology),
      self_(self),
      segment_(segment),
      monitor_(monitor),
      ended_(std::move(ended)),
      door_(std::move(door)),
      peers_(topology.world_size()) {}

PointToPoint::~PointToPoint() { DDPRUN_CHECK(!helper_.joinable(), "Stop was not called"); }

bool PointToPoint::Queue::is_starved() const {
  return !pending.empty() && pending.front()->transfer().is_starved();
}

PointToPoint::Address PointToPoint::OwnAddress() const {
  const std::lock_guard<std::mutex> lock(mu_);
  Address address{.token = door_->token};
  const std::string& text = door_->listener.address();
  DDPRUN_CHECK(text.size() < address.text.size(), "the address is too long: " << text);
  std::memcpy(address.text.data(), text.data(), text.size());
  return address;
}

void PointToPoint::SetAddresses(std::vector<Address> addresses) {
  const std::lock_guard<std::mutex> lock(mu_);
  addresses_ = std::move(addresses);
}

std::string PointToPoint::Name(const Message& message) const {
  const int self = NameOf(self_.rank), peer = NameOf(message.peer());
  return StrCat("message ", message.transfer().call.index, " from rank ", message.is_send() ? self : peer,
                " to rank ", message.is_send() ? peer : self);
}

Greeting PointToPoint::GreetingTo(LinkKind kind, int rank, const Token& token) const {
  return {.kind = kind,
          .from = self_.rank,
          .to = rank,
          .round = self_.round,
          .run_id_hash = self_.run_id_hash,
          .token = token};
}

PointToPoint::Peer& PointToPoint::PeerOf(int rank) {
  if (peers_[rank] != nullptr) return *peers_[rank];
  auto peer = std::make_unique<Peer>();
  peer->rank = rank;
  int& node = peer->node;
  while (topology_.nodes[node].hi <= rank) ++node;
  if (node == self_.node) {
    const int n = topology_.nodes[node].size(), local = rank - topology_.nodes[node].lo;
    const auto offset = [&](int from, int to) {
      return segment_->rings_offset() + PairRingOffset(n, from, to);
    };
    peer->channel = std::make_unique<RingChannel>(segment_->fd(), offset(self_.local_rank, local),
                                                  offset(local, self_.local_rank), &segment_->bell(local));
  } else {
    std::optional<TcpChannel::Target> target;
    if (self_.rank < rank) {
      target = TcpChannel::Target{.address = addresses_[rank].text.data(),
                                  .greeting = GreetingTo(LinkKind::kPair, rank, addresses_[rank].token)};
    }
    auto tcp = std::make_unique<TcpChannel>(TcpChannel::Ends{.rank = NameOf(self_.rank),
                                                             .peer = NameOf(rank),
                                                             .node = self_.node,
                                                             .peer_node = node,
                                                             .round = self_.round,
                                                             .silence_limit = self_.silence_limit},
                                            std::move(target));
    peer->is_local = false;
    peer->tcp = tcp.get();
    peer->channel = std::move(tcp);
  }
  peers_[rank] = std::move(peer);
  return *peers_[rank];
}

std::shared_ptr<internal::Operation> PointToPoint::Start(const Call& call, char* data) {
  return StartMessage(call, data, /*is_staged=*/false);
}

std::shared_ptr<StagedMessage> PointToPoint::StartStaged(const Call& call) {
  return StartMessage(call, nullptr, /*is_staged=*/true);
}

std::shared_ptr<PointToPoint::Message> PointToPoint::StartMessage(const Call& call, char* data,
                                                                  bool is_staged) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!end_.ok()) {  // also after Retire
    auto failed = std::make_shared<Message>(this, call, data, is_staged, 0, self_.timeout);
    failed->Finish(end_);
    return failed;
  }
  Peer& peer = PeerOf(call.root);
  const bool send = call.kind == OpKind::kSend;
  Queue& queue = send ? peer.sends : peer.receives;
  auto message = std::make_shared<Message>(this, call, data, is_staged, queue.num_started++, self_.timeout);
  if (const Status dead = segment_->DeadStatus(); !dead.ok()) FailAll(dead);
  if (!end_.ok()) {
    message->Finish(end_);
    return message;
  }
  if (peer.is_idle() && peer.tcp != nullptr) peer.tcp->BeginWaiting();
  if (!std::exchange(peer.is_active, true)) active_.push_back(&peer);
  queue.pending.push_back(message);
  ++num_pending_;
  for (int i = 0; i < kMaxStartSteps && queue.pending.front() == message; ++i) {
    if (!StepQueue(peer, queue, send) || message->finished()) break;
  }
  if (message->finished()) return message;
  if (!helper_.joinable()) helper_ = std::thread([this] { Help(); });
  if (helper_sleeps_) changed_.notify_one();
  return message;
}

bool PointToPoint::IsIdle() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return num_pending_ == 0;
}

void PointToPoint::End(const Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    FailAll(why);
  }
  segment_->bell(self_.local_rank).RingLoudly();
}

void PointToPoint::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (num_pending_ > 0) FailAll(segment_->DeadStatus());
    if (segment_->DeadStatus().ok()) AnswerWatchers();
    stopping_ = true;
  }
  changed_.notify_one();
  if (helper_.joinable()) helper_.join();
}

void PointToPoint::Retire() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    FailAll(segment_->DeadStatus());
    stopping_ = true;
  }
  changed_.notify_one();
  segment_->bell(self_.local_rank).RingLoudly();
  if (helper_.joinable()) helper_.join();
  std::unique_lock<std::mutex> lock(mu_);
  left_.wait(lock, [this] { return !caller_waits_; });
  peers_.clear();
  watchers_.clear();
  door_.reset();
}

void PointToPoint::FailAll(const Status& why) {
  if (end_.ok()) end_ = why;
  for (Peer* peer : active_) {
    peer->is_active = false;
    for (Queue* queue : {&peer->sends, &peer->receives}) {
      for (const auto& message : queue->pending) message->Finish(end_);
      queue->pending.clear();
    }
  }
  active_.clear();
  num_pending_ = 0;
}

bool PointToPoint::Step() {
  if (num_pending_ == 0) return false;
  if (const Status dead = segment_->DeadStatus(); !dead.ok()) {
    monitor_->PassOnEnds();  // before the caller sees the error and may exit
    FailAll(dead);
    return true;
  }
  bool moved = AcceptPairs();
  for (size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    if (StepQueue(peer, peer.sends, /*send=*/true)) moved = true;
    if (!end_.ok()) return true;
    if (StepQueue(peer, peer.receives, /*send=*/false)) moved = true;
    if (!end_.ok()) return true;
    if (peer.is_idle()) {
      peer.is_active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

bool PointToPoint::StepQueue(Peer& peer, Queue& queue, bool send) {
  if (queue.pending.empty()) return false;
  Message& message = *queue.pending.front();
  // Read first: what a rank has sent before it left is then visible.
  const bool left = peer.has_left || segment_->HasLeft(NameOf(peer.rank));
  Moved moved = Moved::kNone;
  if (!send) moved = peer.channel->Receive(message.transfer());
  if (send && !left) moved = peer.channel->Send(message.transfer());
  message.PublishMoved();
  switch (moved) {
    case Moved::kSome:
      return true;
    case Moved::kAll: {
      const std::shared_ptr<Message> done = std::move(queue.pending.front());
      queue.pending.pop_front();
      --num_pending_;
      done->Finish(OkStatus());
      return true;
    }
    case Moved::kForeign:
      ShowDifference(peer, message);
      return true;
    case Moved::kNone:
      break;
  }
  // A starved message has not looked for what the peer has sent.
  const bool exhausted = !message.transfer().is_starved() && peer.channel->IsExhausted();
  if (left && (send || exhausted)) {
    const Status why = segment_->LeftStatus(NameOf(peer.rank));
    FailAll(why);
    ended_(why);
    return true;
  }
  if (!peer.is_local) Watch(peer);
  // A connection for messages ends by itself, after what the peer has sent.
  const bool is_gone = peer.is_gone && !peer.tcp->IsConnected();
  if (!peer.channel->error().ok() || is_gone) HandleError(peer);
  return false;
}

bool PointToPoint::NeedsConnection() const {
  return std::ranges::any_of(active_, [&](const Peer* p) {
    return p->tcp != nullptr && p->rank < self_.rank && !p->tcp->IsConnected();
  });
}

bool PointToPoint::IsFromGroup(const Greeting& greeting) const {
  const RankRange own = topology_.nodes[self_.node];
  return greeting.to == self_.rank && greeting.round == self_.round &&
         greeting.run_id_hash == self_.run_id_hash && greeting.token == door_->token && greeting.from >= 0 &&
         greeting.from < topology_.world_size() && (greeting.from < own.lo || greeting.from >= own.hi);
}

bool PointToPoint::AcceptPairs() {
  if (!NeedsConnection()) return false;
  return door_->listener.AcceptReady(topology_.world_size(), [&](const Greeting& greeting, UniqueFd& fd) {
    if (!IsFromGroup(greeting)) return false;
    if (greeting.kind == LinkKind::kWatch) {
      watchers_.push_back({std::move(fd), greeting});
      return true;
    }
    if (greeting.kind != LinkKind::kPair || greeting.from > self_.rank) return false;
    Peer& peer = PeerOf(greeting.from);
    if (peer.tcp->IsConnected()) return false;
    if (!Answer(fd, GreetingTo(LinkKind::kPair, greeting.from, greeting.token), -1).ok()) return false;
    peer.tcp->Accept(std::move(fd));
    return true;
  }) > 0;
}

void PointToPoint::Watch(Peer& peer) {
  const auto is_unreported = [&](int rank, int node) {
    const int hub = topology_.nodes[node].lo;
    return rank != hub && segment_->HasLeft(NameOf(hub));
  };
  if (!peer.is_watched) {
    if (!is_unreported(peer.rank, peer.node) && !is_unreported(self_.rank, self_.node)) return;
    const Address& address = addresses_[peer.rank];
    peer.is_watched = true;
    peer.watch = std::make_unique<TcpConnecting>(address.text.data(),
                                                 GreetingTo(LinkKind::kWatch, peer.rank, address.token));
    WatchLink(peer.watch->polled().fd, self_.silence_limit, /*in_flight=*/false);
  }
  if (peer.watch == nullptr) return;
  const TcpConnecting::State state = peer.watch->Step();
  if (state == TcpConnecting::State::kPending) return;
  peer.has_left = state == TcpConnecting::State::kDone;
  // Other failures are those of this rank, for example if it has no descriptors left.
  peer.is_gone = !peer.has_left && peer.watch->why().code() == StatusCode::kUnavailable;
  peer.watch.reset();
}

void PointToPoint::AnswerWatchers() {
  if (!door_) return;
  door_->listener.AcceptReady(INT_MAX, [&](const Greeting& greeting, UniqueFd& fd) {
    // Those that connect for messages learn that this rank leaves before their connection ends.
    if (!IsFromGroup(greeting)) return false;
    watchers_.push_back({std::move(fd), greeting});
    return true;
  });
  for (const auto& [fd, greeting] : watchers_) {
    if (greeting.kind != LinkKind::kWatch) continue;
    // Fails if the other rank no longer watches this one.
    (void)Answer(fd, GreetingTo(LinkKind::kWatch, greeting.from, greeting.token), -1);
  }
}

void PointToPoint::ShowDifference(const Peer& peer, const Message& message) {
  Call own = message.transfer().call, other = peer.channel->foreign();
  own.kind = OpKind::kReceive;  // only receivers compare
  monitor_->SetDead(InvalidArgumentError(
      StrCat("the calls of round ", self_.round, " differ: ", Name(message), " is ", Describe(other),
             " on rank ", NameOf(peer.rank), ", ", Describe(own), " on rank ", NameOf(self_.rank))));
}

void PointToPoint::HandleError(Peer& peer) {
  const TimePoint now = Clock::now();
  if (!peer.broken_since) peer.broken_since = now;
  if (!peer.is_local && now - *peer.broken_since < kExplanationTimeout) return;
  const Status error =
      peer.channel->error().ok() ? GoneError(NameOf(peer.rank), self_.round) : peer.channel->error();
  monitor_->SetDead(peer.is_local
                        ? WithContext(error, StrCat("rank ", NameOf(self_.rank), " of round ", self_.round))
                        : error);
}

}  // namespace ddprun
