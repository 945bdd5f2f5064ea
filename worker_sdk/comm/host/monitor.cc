#include "worker_sdk/comm/host/monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/time/time.h"
#include "base/check.h"
#include "worker_sdk/comm/host/link_watch.h"

namespace ddprun {
namespace {

void Signal(const UniqueFd& event_fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      write(event_fd.get(), &one, sizeof(one));  // fails only when long signalled
}

}  // namespace

Monitor::Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit,
                 std::vector<Peer> peers)
    : segment_(segment),
      local_rank_(local_rank),
      round_(round),
      silence_limit_(silence_limit),
      peers_(std::move(peers)),
      ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      inboxes_(peers_.size()) {
  DDPRUN_CHECK(ended_fd_ && stop_fd_, "descriptors are left");
  thread_ = std::thread([this] { Run(); });
}

Monitor::~Monitor() {
  Signal(stop_fd_);
  thread_.join();
}

void Monitor::SetDead(const absl::Status& why) { Spread(DeadRecord(round_, why), kNobody); }

void Monitor::PassOnEnds() {
  for (const EndRecord& record : segment_->Ends()) Spread(record, kNobody);
}

void Monitor::Leave(int rank, uint64_t num_chunks, Duration patience) {
  const TimePoint deadline = std::chrono::steady_clock::now() + patience;
  Spread(LeftRecord(round_, rank, num_chunks), kNobody);
  {
    absl::MutexLock lock(&mu_);
    leaving_ = true;
    for (const Peer& peer : peers_) shutdown(peer.fd.get(), SHUT_WR);
    if (num_closed_ == peers_.size()) return;
  }
  // Those who do not answer in time see the connection end when this process does.
  all_closed_.WaitUntil(deadline);
}

void Monitor::Close(size_t peer, const absl::Status& why) {
  const int rank = peers_[peer].rank;
  {
    absl::MutexLock lock(&mu_);
    shutdown(peers_[peer].fd.get(), SHUT_WR);  // the answer to who leaves
    if (++num_closed_ == peers_.size()) all_closed_.Set();
    if (leaving_ || has_left_[rank]) return;
  }
  Spread(DeadRecord(round_, why), static_cast<int>(peer));
}

void Monitor::Spread(const EndRecord& record, int from_peer) {
  absl::MutexLock lock(&mu_);
  const bool from_other_node = from_peer != kNobody && peers_[from_peer].on_other_node;
  bool tell_node = true, tell_other_nodes = !from_other_node;
  if (record.kind == EndRecord::kDead) {
    segment_->SetDead(local_rank_, record);
    // Each peer is told once; whoever ends then tells its hub the same.
    tell_node = !std::exchange(node_knows_dead_, true);
    tell_other_nodes = tell_other_nodes && !std::exchange(other_nodes_know_dead_, true);
  } else {
    // Not after fewer chunks than another: no news. Passed on all the same, a large world's farewells would
    // overrun sockets.
    if (from_peer != kNobody && record.num_chunks >= fewest_chunks_) return;
    fewest_chunks_ = std::min(fewest_chunks_, record.num_chunks);
    segment_->SetLeft(record.rank, record.num_chunks);
  }
  Signal(ended_fd_);
  for (size_t p = 0; p < peers_.size(); ++p) {
    if (static_cast<int>(p) == from_peer || !(peers_[p].on_other_node ? tell_other_nodes : tell_node))
      continue;
    // Fails when the peer is gone, which its own watchers see. A few records always fit.
    send(peers_[p].fd.get(), &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

absl::Status Monitor::Receive(size_t peer) {
  Inbox& inbox = inboxes_[peer];
  const absl::Status gone = GoneError(peers_[peer].rank, round_);
  const ssize_t n = recv(peers_[peer].fd.get(), reinterpret_cast<char*>(&inbox.record) + inbox.have,
                         sizeof(EndRecord) - inbox.have, MSG_DONTWAIT);
  // A reset overtakes what was sent before it, which may be why: that is read next, and then the end.
  if (n < 0 && IsSilence(errno)) {
    return CutOffError(peers_[peer].rank, round_, silence_limit_, peers_[peer].ends);
  }
  if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ECONNRESET ? absl::OkStatus() : gone;
  if (n == 0) return gone;
  inbox.have += static_cast<size_t>(n);
  if (inbox.have < sizeof(EndRecord)) return absl::OkStatus();
  inbox.have = 0;
  inbox.record.text[sizeof(inbox.record.text) - 1] = '\0';
  if (inbox.record.magic != EndRecord::kMagic || inbox.record.round != round_) return gone;
  if (inbox.record.kind == EndRecord::kLeft) has_left_[inbox.record.rank] = true;
  Spread(inbox.record, static_cast<int>(peer));
  return absl::OkStatus();
}

void Monitor::Run() {
  std::vector<pollfd> polls{{.fd = stop_fd_.get(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_) polls.push_back({.fd = peer.fd.get(), .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(polls.data(), polls.size(), -1) < 0) continue;  // EINTR
    if (polls[0].revents != 0) return;
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (polls[p + 1].revents == 0) continue;
      const absl::Status received = Receive(p);
      if (received.ok()) continue;
      polls[p + 1].fd = -1;
      Close(p, received);
    }
  }
}

}  // namespace ddprun
