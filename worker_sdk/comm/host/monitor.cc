#include "worker_sdk/comm/host/monitor.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/link_watch.h"

namespace ddprun {
namespace {

// Notes are forwarded once. Ranks that wait for the same operation send equal ones; few wait for others.
constexpr size_t kMaxSpreadNotes = 8;

// A peer with more bytes than this to read gets no notes: the other records need the room.
constexpr int kMaxQueuedBytes = 4096;

bool IsBehind(const UniqueFd& fd) {
  int queued = 0;
  return ioctl(fd.get(), SIOCOUTQ, &queued) != 0 || queued > kMaxQueuedBytes;
}

void Signal(const UniqueFd& event_fd) {
  const uint64_t one = 1;
  // Fails only if the counter is at its maximum; the event is then already signaled.
  [[maybe_unused]] const ssize_t n = write(event_fd.get(), &one, sizeof(one));
}

}  // namespace

Monitor::Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit,
                 std::vector<Peer> peers, std::function<void(const Status&)> on_dead,
                 std::function<Status(int, const CallNote&)> on_note)
    : segment_(segment),
      local_rank_(local_rank),
      round_(round),
      silence_limit_(silence_limit),
      peers_(std::move(peers)),
      on_dead_(std::move(on_dead)),
      on_note_(std::move(on_note)),
      ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      inboxes_(peers_.size()) {
  DDPRUN_CHECK(ended_fd_ && stop_fd_, "no descriptors are left");
  thread_ = std::thread([this] { Run(); });
}

Monitor::~Monitor() {
  Signal(stop_fd_);
  thread_.join();
  // If a connection is closed while it has unread input, the data that was sent last may be lost.
  char unread[sizeof(EndRecord)];
  for (const Peer& peer : peers_) {
    while (recv(peer.fd.get(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {
    }
  }
}

void Monitor::SetDead(const Status& why) { Spread(DeadRecord(round_, why), kNoPeer); }

void Monitor::PassOnEnds() {
  for (const EndRecord& record : segment_->Ends()) Spread(record, kNoPeer);
}

void Monitor::Leave(int rank, uint64_t num_chunks, Duration patience) {
  const TimePoint deadline = std::chrono::steady_clock::now() + patience;
  Spread(LeftRecord(round_, rank, num_chunks), kNoPeer);
  {
    const std::lock_guard<std::mutex> lock(mu_);
    leaving_ = true;
    for (const Peer& peer : peers_) shutdown(peer.fd.get(), SHUT_WR);
    if (num_closed_ == peers_.size()) return;
  }
  // For peers that do not answer in time, the connection closes when this process exits.
  all_closed_.WaitUntil(deadline);
}

void Monitor::Close(size_t peer, const Status& why) {
  const int rank = peers_[peer].rank;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    shutdown(peers_[peer].fd.get(), SHUT_WR);  // acknowledges the kLeft record of a leaving peer
    if (++num_closed_ == peers_.size()) all_closed_.Set();
    if (leaving_ || has_left_[rank]) return;
  }
  Spread(DeadRecord(round_, why), static_cast<int>(peer));
}

void Monitor::Spread(const EndRecord& record, int from_peer) {
  if (record.kind == EndRecord::kNote) return SpreadNote(record, from_peer);
  if (SpreadLocked(record, from_peer) && on_dead_ != nullptr) on_dead_(segment_->DeadStatus());
}

void Monitor::SpreadNote(const EndRecord& record, int from_peer) {
  const std::optional<CallNote> note = NoteIn(record);
  if (!note) return;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (std::ranges::find(spread_notes_, *note) != spread_notes_.end()) return;
    spread_notes_.push_back(*note);
    if (spread_notes_.size() > kMaxSpreadNotes) spread_notes_.pop_front();
    const bool from_other_node = from_peer != kNoPeer && peers_[from_peer].on_other_node;
    SendLocked(record, from_peer, /*to_node=*/true, /*to_other_nodes=*/!from_other_node);
  }
  if (from_peer == kNoPeer || on_note_ == nullptr) return;
  if (const Status compared = on_note_(record.rank, *note); !compared.ok()) SetDead(compared);
}

bool Monitor::SpreadLocked(const EndRecord& record, int from_peer) {
  const std::lock_guard<std::mutex> lock(mu_);
  const bool from_other_node = from_peer != kNoPeer && peers_[from_peer].on_other_node;
  bool send_to_node = true, send_to_other_nodes = !from_other_node, first_error = false;
  if (record.kind == EndRecord::kAsk) {
    if (std::exchange(asked_, true)) return false;
    SendLocked(record, from_peer, send_to_node, send_to_other_nodes);
    segment_->SetLocalAnswer(local_rank_);
    // Through the hub to all other hubs.
    const bool is_hub = local_rank_ == 0;
    SendLocked(AnswerRecord(round_, segment_->IsWaiting(local_rank_)), kNoPeer, !is_hub, is_hub);
    return false;
  }
  if (record.kind == EndRecord::kAnswer) {
    EndRecord answer = record;
    if (answer.rank < 0) answer.rank = peers_[from_peer].rank;
    if (from_other_node) segment_->SetRemoteAnswer(answer.rank, answer.num_chunks != 0);
    SendLocked(answer, from_peer, /*to_node=*/false, send_to_other_nodes);
    return false;
  }
  EndRecord sent = record;
  if (record.kind == EndRecord::kDead) {
    // Another rank of this node may have ended communication before. The other nodes then learn its reason: this record
    // may be a consequence.
    if (!segment_->SetDead(local_rank_, record)) sent = segment_->FirstDead();
    // Each peer is sent at most one kDead record, although many ranks report the same death to their hub.
    first_error = send_to_node = !std::exchange(node_knows_dead_, true);
    send_to_other_nodes = send_to_other_nodes && !std::exchange(other_nodes_know_dead_, true);
  } else if (record.kind == EndRecord::kLeft) {
    segment_->SetLeft(record.rank, record.num_chunks);
    // Every other node learns of every rank that leaves. The ranks of this node read that in the segment; a record is
    // forwarded to them only if it has fewer chunks than every earlier record, because all records of a large world
    // would overflow their socket buffers.
    send_to_node = from_peer == kNoPeer || record.num_chunks < fewest_chunks_;
    fewest_chunks_ = std::min(fewest_chunks_, record.num_chunks);
  } else {
    return false;
  }
  Signal(ended_fd_);
  SendLocked(sent, from_peer, send_to_node, send_to_other_nodes);
  return first_error;
}

void Monitor::SendLocked(const EndRecord& record, int from_peer, bool to_node, bool to_other_nodes) {
  for (size_t p = 0; p < peers_.size(); ++p) {
    if (static_cast<int>(p) == from_peer || !(peers_[p].on_other_node ? to_other_nodes : to_node)) continue;
    if (record.kind == EndRecord::kNote && IsBehind(peers_[p].fd)) continue;
    // The send fails if the peer has exited; a broken connection is detected in Receive. The few records
    // always fit into the socket buffer.
    send(peers_[p].fd.get(), &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Status Monitor::Receive(size_t peer) {
  Inbox& inbox = inboxes_[peer];
  const Status gone = GoneError(peers_[peer].rank, round_);
  const ssize_t n = recv(peers_[peer].fd.get(), reinterpret_cast<char*>(&inbox.record) + inbox.have,
                         sizeof(EndRecord) - inbox.have, MSG_DONTWAIT);
  if (n < 0 && IsSilence(errno)) {
    return CutOffError(peers_[peer].rank, round_, silence_limit_, peers_[peer].ends);
  }
  // recv reports a reset before the data that the peer sent earlier. Keep reading: the data follows, and then
  // the end of file.
  if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNRESET ? OkStatus() : gone;
  if (n == 0) return gone;
  inbox.have += static_cast<size_t>(n);
  if (inbox.have < sizeof(EndRecord)) return OkStatus();
  inbox.have = 0;
  inbox.record.text[sizeof(inbox.record.text) - 1] = '\0';
  if (inbox.record.magic != EndRecord::kMagic || inbox.record.round != round_) return gone;
  if (inbox.record.kind == EndRecord::kLeft) has_left_[inbox.record.rank] = true;
  Spread(inbox.record, static_cast<int>(peer));
  return OkStatus();
}

void Monitor::Run() {
  std::vector<pollfd> polls{{.fd = stop_fd_.get(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_) polls.push_back({.fd = peer.fd.get(), .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(polls.data(), polls.size(), -1) < 0) continue;  // EINTR
    if (polls[0].revents != 0) return;
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (polls[p + 1].revents == 0) continue;
      const Status received = Receive(p);
      if (received.ok()) continue;
      polls[p + 1].fd = -1;
      Close(p, received);
    }
  }
}

}  // namespace ddprun
