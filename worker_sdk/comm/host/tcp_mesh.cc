#include "worker_sdk/comm/host/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// When a data connection breaks, the monitor reports the cause, which may be the death of another rank. If
// the monitor reports no cause within this time, the peer is assumed to be the cause.
constexpr Duration kExplanationTimeout = milliseconds(300);

// Added to the silence limit for data in flight; keepalive also takes up to this much longer than the limit.
// The lease of a lost node should equal the limit, so it expires before this error occurs, and the launcher
// reports a more precise error.
constexpr Duration kPatience = seconds(1);

}  // namespace

TcpMesh::TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment,
                 Monitor* monitor, Patience* patience)
    : peers_(std::move(peers)),
      local_rank_(local_rank),
      silence_limit_(silence_limit),
      segment_(segment),
      monitor_(monitor),
      patience_(patience) {
  for (size_t node = 0; node < peers_.size(); ++node) {
    for (const UniqueFd& fd : peers_[node].fds) {
      for (const bool sends : {false, true}) {
        flows_.push_back({.node = static_cast<int>(node), .messages = MessageFlow(fd.get(), sends)});
      }
    }
  }
}

void TcpMesh::Close() {
  flows_.clear();
  peers_.clear();
}

void TcpMesh::Post(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives) {
  const Frame frame{
      .round = segment_->layout().round, .chunk = tag.chunk, .phase = tag.phase, .call = tag.call};
  const auto add = [&](std::vector<Message>& messages, bool are_sent, int& num_pending) {
    for (Message& m : messages) flow(m.node, tag.exchange, are_sent).messages.Add(frame, std::move(m.parts));
    num_pending += static_cast<int>(messages.size());
  };
  add(sends, true, num_sends_[tag.chunk % kMaxSlots]);
  add(receives, false, num_receives_[tag.chunk % kMaxSlots]);
}

bool TcpMesh::Move() {
  bool completed = false;
  // Sends first: while this lane sends, data from the peers arrives.
  for (const bool sends : {true, false}) {
    for (Flow& f : flows_) {
      if (f.messages.sends() == sends) completed |= Move(f);
    }
  }
  return completed;
}

bool TcpMesh::Move(Flow& f) {
  MessageFlow& messages = f.messages;
  bool completed = false;
  while (!messages.empty() && messages.state() == MessageFlow::State::kReady && !IsHeld(f) &&
         messages.Move()) {
    --(messages.sends() ? num_sends_ : num_receives_)[messages.frame().chunk % kMaxSlots];
    messages.Pop();
    completed = true;
  }
  return completed;
}

bool TcpMesh::IsHeld(const Flow& f) const {
  if (!f.messages.sends()) return false;
  const MessageFlow& receives = (&f - 1)->messages;  // of the same connection
  return !receives.empty() && receives.frame().call.index < f.messages.frame().call.index;
}

Status TcpMesh::Await(uint64_t chunk) {
  for (const Flow& f : flows_) {
    const MessageFlow::State state = f.messages.state();
    if (Concerns(f, chunk) &&
        (state == MessageFlow::State::kBroken || state == MessageFlow::State::kForeign)) {
      return Report(f, chunk);
    }
  }
  // If an end record arrived during an earlier chunk and did not affect that chunk, ended_fd has already been
  // read, so the record would not wake the poll below.
  DDPRUN_RETURN_IF_ERROR(segment_->EndOf(chunk));
  ListPolls();
  // The timeout is short enough to detect unacknowledged data in time.
  const Duration timeout = std::clamp<Duration>(patience_->deadline - std::chrono::steady_clock::now(),
                                                Duration::zero(), silence_limit_ / 8);
  segment_->SetAwaitedPeer(local_rank_, AwaitedRank(chunk));
  const int ready = poll(polls_.data(), polls_.size(), static_cast<int>(ToMillis(timeout)));
  patience_->Check();
  segment_->SetAwaitedPeer(local_rank_, -1);
  if (ready == 0) {
    for (const Flow& f : flows_) {
      if (Concerns(f, chunk)) DDPRUN_RETURN_IF_ERROR(CheckAnswers(f, chunk));
    }
  }
  if (ready <= 0) return OkStatus();
  for (size_t i = 0; i < polled_.size(); ++i) {
    if (polls_[i + 1].revents != 0) polled_[i]->messages.Unblock();
  }
  if (polls_[0].revents == 0) return OkStatus();
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(monitor_->ended_fd(), &count, sizeof(count));
  return segment_->EndOf(chunk);
}

void TcpMesh::ListPolls() {
  polls_.assign(1, {.fd = monitor_->ended_fd(), .events = POLLIN, .revents = 0});
  polled_.clear();
  for (Flow& f : flows_) {
    const MessageFlow& messages = f.messages;
    if (messages.empty() || messages.state() != MessageFlow::State::kBlocked || IsHeld(f)) continue;
    const short events = messages.sends() ? POLLOUT : POLLIN;
    polls_.push_back({.fd = messages.fd(), .events = events, .revents = 0});
    polled_.push_back(&f);
  }
}

int TcpMesh::AwaitedRank(uint64_t chunk) const {
  int awaited = -1;
  for (const Flow& f : flows_) {
    if (!Concerns(f, chunk)) continue;
    awaited = peers_[f.node].rank;
    if (!f.messages.sends()) break;
  }
  return awaited;
}

Status TcpMesh::Report(const Flow& f, uint64_t chunk) {
  const Peer& peer = peers_[f.node];
  const Frame& expected = f.messages.frame();
  if (f.messages.state() == MessageFlow::State::kBroken) {
    return Broken(chunk, IsSilence(f.messages.error())
                             ? CutOffError(peer.rank, expected.round, silence_limit_, peer.ends)
                             : GoneError(peer.rank, expected.round));
  }
  const Frame& arrived = f.messages.arrived();
  monitor_->SetDead(arrived.magic != Frame::kMagic || arrived.round != expected.round
                        ? AbortedError(StrCat("rank ", peer.rank, " sent a message of round ", arrived.round,
                                              " in round ", expected.round))
                        : CallsDiffer(expected.round, "this node", expected.call, StrCat("rank ", peer.rank),
                                      arrived.call));
  return segment_->EndOf(chunk);
}

Status TcpMesh::CheckAnswers(const Flow& f, uint64_t chunk) {
  const TimePoint now = std::chrono::steady_clock::now();
  const Peer& peer = peers_[f.node];
  const Duration limit = silence_limit_ + kPatience;
  // UnansweredFor may include time before the data was sent, so last_moved is checked as well.
  const Flow& opposite = f.messages.sends() ? *(&f - 1) : *(&f + 1);  // of the same connection
  const TimePoint last_moved = std::max(f.messages.last_moved(), opposite.messages.last_moved());
  if (now - last_moved < limit || UnansweredFor(f.messages.fd()) < limit) return OkStatus();
  return Broken(chunk, CutOffError(peer.rank, segment_->layout().round, silence_limit_, peer.ends));
}

Status TcpMesh::Broken(uint64_t chunk, const Status& why) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kExplanationTimeout;
  for (TimePoint now; (now = std::chrono::steady_clock::now()) < deadline;) {
    DDPRUN_RETURN_IF_ERROR(segment_->EndOf(chunk));
    pollfd p{.fd = monitor_->ended_fd(), .events = POLLIN, .revents = 0};
    if (poll(&p, 1, static_cast<int>(ToMillis(deadline - now))) > 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(p.fd, &count, sizeof(count));
    }
  }
  monitor_->SetDead(why);
  return segment_->EndOf(chunk);
}

}  // namespace ddprun
