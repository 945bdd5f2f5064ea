#include "worker_sdk/testing/gpu/nccl/mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "base/check.h"

namespace ddprun::stand_in {

Outcome Mesh::Connect(const UniqueId& id, int rank, int num_ranks, int device, const Cancel& cancel) {
  rank_ = rank;
  num_ranks_ = num_ranks;
  peers_.resize(static_cast<size_t>(num_ranks));
  arriving_.resize(static_cast<size_t>(num_ranks));
  Member self{LocalAddress(), IdOfProcess(), device};
  const UniqueFd listener = Listen(self.address);
  Outcome outcome = Join(id, rank, num_ranks, self, cancel, all_);
  struct Caller {
    uint64_t cookie;
    int32_t rank;
  };
  for (int peer = 0; peer < rank && outcome == Outcome::kDone; ++peer) {
    peers_[peer] = ConnectTo(all_.members[peer].address, cancel);
    if (!peers_[peer]) return cancel.fired() ? Outcome::kCancelled : Outcome::kPeerDied;
    outcome = Write(peers_[peer], Caller{id.cookie, rank}, cancel);
  }
  for (int missing = num_ranks - 1 - rank; missing > 0 && outcome == Outcome::kDone;) {
    UniqueFd fd = Accept(listener.get(), cancel);
    if (!fd) return Outcome::kCancelled;
    Caller caller{};
    if (Read(fd, caller, cancel) != Outcome::kDone || caller.cookie != id.cookie) continue;
    DDPRUN_CHECK(caller.rank > rank && caller.rank < num_ranks, caller.rank);
    peers_[caller.rank] = std::move(fd);
    --missing;
  }
  return outcome;
}

bool Mesh::SharesDevice() const {
  for (const Member& a : all_.members) {
    const auto same = [&](const Member& b) { return a.process == b.process && a.device == b.device; };
    if (std::count_if(all_.members.begin(), all_.members.end(), same) > 1) return true;
  }
  return false;
}

// The state of one Exchange() with one peer.
class Mesh::Progress {
 public:
  Progress(int fd, Arriving& arriving) : fd_(fd), arriving_(arriving) {}
  void Add(const Outgoing& message) { outgoing_.push_back(message); }
  void Add(const Incoming& message) { incoming_.push_back(message); }
  void AddReady() { ++ready_; }

  // Uses the kReady that have arrived, and returns the events to wait for; 0 if there is nothing left to do.
  short Events() {
    const int used = std::min(ready_, arriving_.ready);
    ready_ -= used;
    arriving_.ready -= used;
    return static_cast<short>((outgoing_.empty() ? 0 : POLLOUT) |
                              (incoming_.empty() && ready_ == 0 ? 0 : POLLIN));
  }

  // If the header of the next message is complete, starts to receive it.
  Outcome StartIncoming() {
    if (!arriving_.complete()) return Outcome::kDone;
    if (arriving_.header.call == Header::kReady) {
      ++arriving_.ready;
      arriving_.header_bytes = 0;
      return Outcome::kDone;
    }
    if (incoming_.empty()) return ready_ == 0 ? Outcome::kDone : Outcome::kDifferent;
    if (arriving_.header != incoming_.front().header) return Outcome::kDifferent;
    if (arriving_.header.bytes == 0) FinishIncoming();
    return Outcome::kDone;
  }

  Outcome Send() {
    const Outgoing& message = outgoing_.front();
    const size_t bytes = message.header.bytes;
    const bool in_header = sent_ < sizeof message.header;
    const auto* from = in_header ? reinterpret_cast<const std::byte*>(&message.header) + sent_
                                 : message.bytes + (sent_ - sizeof message.header);
    const size_t part = in_header ? sizeof message.header - sent_ : bytes + sizeof message.header - sent_;
    const ssize_t n = send(fd_, from, part, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? Outcome::kDone : Outcome::kPeerDied;
    sent_ += static_cast<size_t>(n);
    if (sent_ == sizeof message.header + bytes) {
      outgoing_.pop_front();
      sent_ = 0;
    }
    return Outcome::kDone;
  }

  Outcome Receive() {
    if (!arriving_.complete()) return ReceiveHeader();
    Incoming& message = incoming_.front();
    return ReceiveInto(message.bytes + received_, message.header.bytes - received_, [&](size_t n) {
      received_ += n;
      if (received_ == message.header.bytes) FinishIncoming();
    });
  }

 private:
  template <typename Then>
  Outcome ReceiveInto(std::byte* to, size_t bytes, Then then) {
    const ssize_t n = recv(fd_, to, bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return Outcome::kPeerDied;
    if (n > 0) then(static_cast<size_t>(n));
    return Outcome::kDone;
  }

  Outcome ReceiveHeader() {
    auto* const header = reinterpret_cast<std::byte*>(&arriving_.header);
    const Outcome outcome =
        ReceiveInto(header + arriving_.header_bytes, sizeof(Header) - arriving_.header_bytes,
                    [&](size_t n) { arriving_.header_bytes += n; });
    return outcome == Outcome::kDone ? StartIncoming() : outcome;
  }

  void FinishIncoming() {
    incoming_.pop_front();
    received_ = 0;
    arriving_.header_bytes = 0;
  }

  const int fd_;
  Arriving& arriving_;
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;
  int ready_ = 0;                   // that must still arrive
  size_t sent_ = 0, received_ = 0;  // of the first message; sent_ counts the header as well
};

Outcome Mesh::Exchange(const Messages& messages, const Cancel& cancel) {
  std::vector<Progress> progress;
  for (int i = 0; i < num_ranks_; ++i) progress.emplace_back(peers_[i].get(), arriving_[i]);
  for (const Outgoing& message : messages.outgoing) progress[message.peer].Add(message);
  for (const Incoming& message : messages.incoming) progress[message.peer].Add(message);
  for (const int peer : messages.ready) progress[peer].AddReady();
  for (int i = 0; i < num_ranks_; ++i) {  // headers that arrived during an earlier operation
    if (progress[i].Events() & POLLIN && progress[i].StartIncoming() != Outcome::kDone)
      return Outcome::kDifferent;
  }
  for (;;) {
    std::vector<pollfd> polled{{cancel.fd(), POLLIN, 0}};
    for (int i = 0; i < num_ranks_; ++i) {
      const short events = progress[i].Events();
      polled.push_back({events == 0 ? -1 : peers_[i].get(), events, 0});
    }
    if (std::all_of(polled.begin() + 1, polled.end(), [](const pollfd& p) { return p.fd < 0; }))
      return Outcome::kDone;
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (cancel.fired()) return Outcome::kCancelled;
    for (int i = 0; i < num_ranks_; ++i) {
      const short happened = polled[i + 1].revents;
      Outcome outcome = Outcome::kDone;
      if (happened & POLLOUT) outcome = progress[i].Send();
      if (outcome == Outcome::kDone && happened & POLLIN) outcome = progress[i].Receive();
      if ((happened & (POLLOUT | POLLIN)) == 0 && happened & (POLLHUP | POLLERR))
        outcome = Outcome::kPeerDied;
      if (outcome != Outcome::kDone) return outcome;
    }
  }
}

}  // namespace ddprun::stand_in
