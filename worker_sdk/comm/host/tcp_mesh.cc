#include "worker_sdk/comm/host/tcp_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <span>
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

// Precedes the payload of every message.
struct Frame {
  static constexpr uint64_t kMagic = 0x31454d4152465044;  // "DPFRAME1"
  uint64_t magic = kMagic;
  int64_t round = 0;
  uint64_t chunk = 0;
  uint32_t phase = 0;
  uint32_t reserved = 0;
  uint64_t num_bytes = 0;  // of the payload
  Call call;
};

enum class Moved { kAll, kSome, kNone, kBroken };

// A message in flight: a frame, followed by the parts of the message.
class Transfer {
 public:
  Transfer(int fd, const Frame& frame, TcpMesh::Message message)
      : fd_(fd), node_(message.node), frame_(frame), parts_(std::move(message.parts)) {
    for (const iovec& part : parts_) frame_.num_bytes += part.iov_len;
    expected_ = frame_;
    parts_.insert(parts_.begin(), iovec{});  // for frame_, whose address is not final; Move() sets it
  }

  int node() const { return node_; }
  bool done() const { return next_ == parts_.size(); }
  // When receiving: true if the frame is complete and differs from the expected frame.
  bool IsForeign() const { return next_ > 0 && std::memcmp(&frame_, &expected_, sizeof(Frame)) != 0; }
  const Frame& frame() const { return frame_; }

  // Sends or receives as much as possible without blocking. If the result is kBroken, errno has the reason.
  Moved Move(bool send) {
    bool moved = false;
    while (!done()) {
      // When receiving, the frame is read separately: the payload is read only if the frame is as expected.
      iovec frame_part{reinterpret_cast<char*>(&frame_) + frame_have_, sizeof(Frame) - frame_have_};
      if (next_ == 0) parts_[0] = frame_part;
      msghdr msg{};
      msg.msg_iov = &parts_[next_];
      msg.msg_iovlen = !send && next_ == 0 ? 1 : std::min<size_t>(parts_.size() - next_, IOV_MAX);
      const ssize_t n =
          send ? sendmsg(fd_, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(fd_, &msg, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return moved ? Moved::kSome : Moved::kNone;
      if (n == 0 && !send) errno = ECONNRESET;  // the peer has closed the connection
      if (n < 0 || (n == 0 && !send)) return Moved::kBroken;
      moved = true;
      Advance(static_cast<size_t>(n));
      if (!send && IsForeign()) return Moved::kSome;
    }
    return Moved::kAll;
  }

 private:
  void Advance(size_t n) {
    while (!done()) {
      iovec& part = parts_[next_];
      const size_t step = std::min(n, part.iov_len);
      if (next_ == 0) frame_have_ += step;
      part.iov_base = static_cast<char*>(part.iov_base) + step;
      part.iov_len -= step;
      n -= step;
      if (part.iov_len > 0) return;
      ++next_;
    }
  }

  const int fd_;
  const int node_;
  Frame frame_;     // the frame to send, or the received frame
  Frame expected_;  // when receiving: the frame that the peer should send
  size_t frame_have_ = 0;
  std::vector<iovec> parts_;
  size_t next_ = 0;  // index of the first part that is not complete
};

}  // namespace

TcpMesh::TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment,
                 Monitor* monitor, Patience* patience)
    : peers_(std::move(peers)),
      local_rank_(local_rank),
      silence_limit_(silence_limit),
      last_moved_(peers_.size()),
      segment_(segment),
      monitor_(monitor),
      patience_(patience) {}

Status TcpMesh::Exchange(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives,
                         CatchUp catch_up) {
  const Frame frame{
      .round = segment_->layout().round, .chunk = tag.chunk, .phase = tag.phase, .call = tag.call};
  std::vector<Transfer> transfers;
  const size_t num_sends = sends.size();
  for (auto* messages : {&sends, &receives}) {
    for (Message& m : *messages) transfers.emplace_back(peers_[m.node].fd.get(), frame, std::move(m));
  }
  std::vector<short> events(peers_.size());
  std::ranges::fill(last_moved_, std::chrono::steady_clock::now());
  while (true) {
    std::fill(events.begin(), events.end(), 0);
    bool all = true;
    int awaited = -1;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& t = transfers[i];
      const bool send = i < num_sends;
      if (t.done()) continue;
      const Moved moved = t.Move(send);
      if (moved == Moved::kBroken) {
        const Peer& peer = peers_[t.node()];
        return Broken(tag.chunk, IsSilence(errno)
                                     ? CutOffError(peer.rank, frame.round, silence_limit_, peer.ends)
                                     : GoneError(peer.rank, frame.round));
      }
      if (moved != Moved::kNone) last_moved_[t.node()] = std::chrono::steady_clock::now();
      if (moved == Moved::kAll) continue;
      if (!send && t.IsForeign()) {
        const Frame& f = t.frame();
        monitor_->SetDead(
            f.magic != Frame::kMagic || f.round != frame.round
                ? AbortedError(StrCat("rank ", peers_[t.node()].rank, " sent a message of round ", f.round,
                                      " in round ", frame.round))
                : InvalidArgumentError(StrCat("the calls of round ", frame.round, " differ: operation ",
                                              frame.call.index, " of this node is ", Describe(frame.call),
                                              ", operation ", f.call.index, " of rank ",
                                              peers_[t.node()].rank, " is ", Describe(f.call))));
        return segment_->EndOf(tag.chunk);
      }
      all = false;
      events[t.node()] |= send ? POLLOUT : POLLIN;
      if (!send) awaited = peers_[t.node()].rank;
    }
    if (all) break;
    DDPRUN_RETURN_IF_ERROR(catch_up());
    segment_->SetAwaitedPeer(local_rank_, awaited);
    Status waited = AwaitEvent(tag.chunk, events);
    segment_->SetAwaitedPeer(local_rank_, -1);
    if (!waited.ok()) return waited;
  }
  return OkStatus();
}

// Blocks until a connection is ready or communication ends, at most until the deadline and for an eighth of the
// silence limit.
Status TcpMesh::AwaitEvent(uint64_t chunk, std::span<const short> events_by_node) {
  // If an end record arrived during an earlier chunk and did not affect that chunk, ended_fd has already been
  // read, so the record would not wake the poll below.
  DDPRUN_RETURN_IF_ERROR(segment_->EndOf(chunk));
  std::vector<pollfd> polls{{.fd = monitor_->ended_fd(), .events = POLLIN, .revents = 0}};
  for (size_t node = 0; node < peers_.size(); ++node) {
    if (events_by_node[node] != 0) {
      polls.push_back({.fd = peers_[node].fd.get(), .events = events_by_node[node], .revents = 0});
    }
  }
  // The timeout is short enough to detect unacknowledged data in time.
  const TimePoint now = std::chrono::steady_clock::now();
  const Duration timeout =
      std::clamp<Duration>(patience_->deadline - now, Duration::zero(), silence_limit_ / 8);
  const int ready = poll(polls.data(), polls.size(), static_cast<int>(ToMillis(timeout)));
  patience_->Check();
  if (ready == 0) {
    for (size_t node = 0; node < peers_.size(); ++node) {
      if (events_by_node[node] != 0) DDPRUN_RETURN_IF_ERROR(CheckAnswers(static_cast<int>(node), chunk));
    }
  }
  if (ready <= 0 || polls[0].revents == 0) return OkStatus();
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(monitor_->ended_fd(), &count, sizeof(count));
  return segment_->EndOf(chunk);
}

Status TcpMesh::CheckAnswers(int node, uint64_t chunk) {
  const TimePoint now = std::chrono::steady_clock::now();
  const Peer& peer = peers_[node];
  const Duration limit = silence_limit_ + kPatience;
  // UnansweredFor may include time before the data was sent, so last_moved_ is checked as well.
  if (now - last_moved_[node] < limit || UnansweredFor(peer.fd.get()) < limit) return OkStatus();
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
