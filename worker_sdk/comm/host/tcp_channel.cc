#include "worker_sdk/comm/host/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes that one step sends or receives at most.
constexpr size_t kPiece = 1 << 20;

// Added to the silence limit for data in flight, as in tcp_mesh.cc.
constexpr Duration kPatience = seconds(1);

}  // namespace

TcpChannel::TcpChannel(const Ends& ends, std::optional<Target> target)
    : ends_(ends), target_(std::move(target)) {}

TcpChannel::~TcpChannel() {
  constexpr int kMaxDiscards = 64;
  for (int i = 0; fd_ && i < kMaxDiscards; ++i) {
    // With MSG_TRUNC, TCP discards data and uses no buffer.
    if (recv(fd_.get(), nullptr, 1 << 20, MSG_DONTWAIT | MSG_TRUNC) <= 0) break;
  }
}

void TcpChannel::Accept(UniqueFd fd) { Use(std::move(fd)); }

void TcpChannel::Use(UniqueFd fd) {
  fd_ = std::move(fd);
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  WatchLink(fd_.get(), ends_.silence_limit, /*in_flight=*/false);
  ends_in_words_ = EndsInWords(fd_.get(), ends_.node, ends_.peer_node);
}

bool TcpChannel::Connect() {
  if (fd_) return error_.ok();
  if (!error_.ok() || !target_) return false;
  if (!connecting_) connecting_.emplace(target_->address, target_->greeting);
  switch (connecting_->Step()) {
    case TcpConnecting::State::kPending:
      return false;
    case TcpConnecting::State::kDone:
      Use(connecting_->take());
      connecting_.reset();
      return true;
    case TcpConnecting::State::kFailed:
      // In the words that launchers recognize: a process that runs accepts the connection.
      error_ = WithContext(connecting_->why(), GoneError(ends_.peer, ends_.round).message());
      return false;
  }
  return false;
}

Moved TcpChannel::Broken(int error) {
  error_ = IsSilence(error)
               ? CutOffError(ends_.peer, ends_.round, SilenceLimit(ends_.silence_limit), ends_in_words_)
               : GoneError(ends_.peer, ends_.round);
  return Moved::kNone;
}

Moved TcpChannel::Send(Transfer& t) {
  if (!Connect()) return Moved::kNone;
  if (!t.begun) {
    out_ = {.round = ends_.round, .call = t.call};
    out_moved_ = 0;
    t.begun = true;
  }
  if (out_moved_ == sizeof(out_) && t.is_starved()) return Moved::kNone;
  const std::span<char> next = t.next();
  iovec parts[] = {{reinterpret_cast<char*>(&out_) + out_moved_, sizeof(out_) - out_moved_},
                   {next.data(), std::min(next.size(), kPiece)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Moved::kNone : Broken(errno);
  last_moved_ = Clock::now();
  const size_t of_frame = std::min(static_cast<size_t>(n), parts[0].iov_len);
  out_moved_ += of_frame;
  t.num_moved += static_cast<size_t>(n) - of_frame;
  return out_moved_ == sizeof(out_) && t.num_left() == 0 ? Moved::kAll : Moved::kSome;
}

Moved TcpChannel::Receive(Transfer& t) {
  if (!Connect()) return Moved::kNone;
  if (!t.begun) {
    in_moved_ = 0;
    t.begun = true;
  }
  // If the frame is another one than expected, the error leaves the contents of the output undefined anyway.
  if (in_moved_ == sizeof(in_) && t.is_starved()) return Moved::kNone;
  const std::span<char> next = t.next();
  iovec parts[] = {{reinterpret_cast<char*>(&in_) + in_moved_, sizeof(in_) - in_moved_},
                   {next.data(), std::min(next.size(), kPiece)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Moved::kNone : Broken(errno);
  if (n == 0) return Broken(ECONNRESET);  // the peer has closed the connection
  last_moved_ = Clock::now();
  const size_t of_frame = std::min(static_cast<size_t>(n), parts[0].iov_len);
  in_moved_ += of_frame;
  t.num_moved += static_cast<size_t>(n) - of_frame;
  if (of_frame > 0 && in_moved_ == sizeof(in_)) {
    if (in_.magic != Frame::kMagic || in_.round != ends_.round) {
      error_ = AbortedError(
          StrCat("rank ", ends_.peer, " sent a message of round ", in_.round, " in round ", ends_.round));
      return Moved::kNone;
    }
    if (in_.call != t.call) {
      foreign_ = in_.call;
      return Moved::kForeign;
    }
  }
  return in_moved_ == sizeof(in_) && t.num_left() == 0 ? Moved::kAll : Moved::kSome;
}

void TcpChannel::AddPolls(bool sends, bool receives, std::vector<pollfd>& polls) const {
  if (!error_.ok()) return;
  if (connecting_) {
    polls.push_back(connecting_->polled());
  } else if (fd_) {
    const short events = static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    polls.push_back({.fd = fd_.get(), .events = events, .revents = 0});
  }
}

void TcpChannel::CheckSilence() {
  if (!error_.ok() || !fd_) return;
  const Duration limit = SilenceLimit(ends_.silence_limit) + kPatience;
  // UnansweredFor may include time before the data was sent, so last_moved_ is checked as well.
  if (Clock::now() - last_moved_ < limit || UnansweredFor(fd_.get()) < limit) return;
  Broken(ETIMEDOUT);
}

}  // namespace ddprun
