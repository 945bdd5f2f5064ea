#include "rendezvous/c10d/c10d_session.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {
namespace {

// Maximum size of one read. Other connections are served between two reads.
constexpr size_t kInputBytes = 64 << 10;
// Maximum number of reads that discard input before a draining connection is closed.
constexpr int kReadsWhenAbandoned = 4;
// Maximum capacity that an empty reply buffer keeps.
constexpr size_t kKeptBytes = 1 << 10;
// Estimated memory of a connection without its buffers: the session and its entries in tables.
constexpr uint64_t kConnectionBytes = sizeof(C10dSession) + 128;

static_assert(kConnectionBytes + kKeptBytes + c10d::Parser::kMaxIdleBytes <= kMaxIdleConnectionBytes);

char* Input() {
  thread_local const std::unique_ptr<char[]> buffer(new char[kInputBytes]);
  return buffer.get();
}

absl::Status Broke(int error) {
  return absl::UnavailableError(absl::StrCat("the connection broke: ", std::strerror(error)));
}

}  // namespace

C10dSession::C10dSession(int fd, PollSet* poll_set, StoreHub* hub, const C10dSessionOptions& options,
                         Owner* owner)
    : fd_(fd),
      poll_set_(poll_set),
      hub_(hub),
      id_(hub->Enter(this)),
      options_(options),
      owner_(owner),
      parser_(options.parser, options.legacy) {}

C10dSession::~C10dSession() { Release(); }

std::string C10dSession::peer() const {
  boost::asio::ip::tcp::endpoint endpoint;
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (!open() || ::getpeername(fd_, endpoint.data(), &size) != 0) return "a disconnected peer";
  endpoint.resize(size);
  auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
  }
  return absl::StrCat(address.to_string(), ":", endpoint.port());
}

absl::Status C10dSession::Start() {
  RETURN_IF_ERROR(hub_->store().Charge(kConnectionBytes, "a connection"));
  accounted_ = kConnectionBytes;
  RETURN_IF_ERROR(poll_set_->Add(fd_, EPOLLIN, this));
  polled_ = true;
  interest_ = EPOLLIN;
  return absl::OkStatus();
}

void C10dSession::OnEvents(uint32_t events) {
  Owner* const owner = owner_;
  if ((events & EPOLLOUT) != 0) AfterOutput();
  if (open() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
  if (open()) UpdateInterest();
  owner->OnTurnDone();
}

void C10dSession::OnWoken() {
  // The reply is appended now so that it precedes the reply to a later CANCEL_WAIT from this connection.
  c10d::AppendU8(static_cast<uint8_t>(c10d::WaitReply::kStopWaiting), &out_);
  owner_->OnWoken(*this);
}

void C10dSession::OnStoreGone() { hub_ = nullptr; }

void C10dSession::Read() {
  if (held_ || ended_) {
    // EPOLLIN is not registered, so the event is EPOLLHUP or EPOLLERR. The replies cannot be delivered.
    return Close(Broke(ECONNRESET));
  }
  const ssize_t n = ::recv(fd_, Input(), kInputBytes, 0);
  if (n > 0) {
    if (!draining_) Process({Input(), static_cast<size_t>(n)});
  } else if (n == 0) {
    ended_ = true;
    // If replies are pending, the connection stays open until they have been sent.
    if (unsent() == 0) Close(absl::OkStatus());
  } else if (errno != EAGAIN && errno != EINTR) {
    Close(Broke(errno));
  }
}

void C10dSession::Process(absl::string_view data) {
  held_ = false;
  absl::Status failed;
  const absl::Status parsed = parser_.Feed(data, [this, &failed](const c10d::Request& request) {
    failed = owner_->OnRequest(*this, request);
    held_ = unsent() > options_.max_unsent_bytes;
    return failed.ok() && !held_;
  });
  Flush();
  if (!open()) return;
  if (!failed.ok()) return Close(failed);
  if (!parsed.ok()) return Close(parsed);
  if (parser_.NeedsGrace() && !std::exchange(grace_asked_, true)) owner_->OnGrace(*this);
}

void C10dSession::EndGrace() {
  if (!open() || draining_ || !parser_.NeedsGrace()) return;
  // If input has arrived in the meantime, Read will process it, and the parser will resolve the opcode then.
  int waiting = 0;
  if (::ioctl(fd_, FIONREAD, &waiting) == 0 && waiting > 0) return;
  absl::Status failed;
  // The parser cannot fail, because the request is a complete DELETE_KEY.
  (void)parser_.EndGrace([this, &failed](const c10d::Request& request) {
    failed = owner_->OnRequest(*this, request);
    return failed.ok();
  });
  Flush();
  if (open() && !failed.ok()) Close(failed);
  if (open()) UpdateInterest();
}

void C10dSession::Flush() {
  if (!open()) return;
  if (unsent() > 0) {
    const ssize_t n = ::send(fd_, out_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return Close(Broke(errno));
    if (n > 0) sent_ += static_cast<size_t>(n);
  }
  if (unsent() == 0) {
    sent_ = 0;
    out_.clear();
    if (out_.capacity() > kKeptBytes) std::string().swap(out_);
    if (draining_ && !std::exchange(fin_sent_, true)) ::shutdown(fd_, SHUT_WR);
  } else if (sent_ > unsent()) {
    // Drops the part that has been sent. Otherwise the buffer would grow without bound if the peer never
    // catches up.
    out_.erase(0, std::exchange(sent_, 0));
  }
  const absl::Status status = Account();
  if (!status.ok()) return Close(status);
  UpdateInterest();
}

// Called when the socket is writable. Sends replies, then executes the requests that are held.
void C10dSession::AfterOutput() {
  Flush();
  if (!open() || unsent() > 0) return;
  if (held_) Process("");
  if (open() && ended_ && unsent() == 0 && !held_) Close(absl::OkStatus());
}

// Updates the bytes charged to the store.
absl::Status C10dSession::Account() {
  const uint64_t held = parser_.held_bytes() + out_.capacity();
  const uint64_t now = kConnectionBytes + held;
  if (now == accounted_) return absl::OkStatus();
  if (now < accounted_) {
    hub_->store().Refund(accounted_ - now);
  } else {
    if (held > options_.max_held_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the connection holds ", held,
                                                       " bytes of requests and replies; at most ",
                                                       options_.max_held_bytes, " are allowed"));
    }
    RETURN_IF_ERROR(hub_->store().Charge(now - accounted_, "a connection's buffers"));
  }
  accounted_ = now;
  return absl::OkStatus();
}

void C10dSession::UpdateInterest() {
  uint32_t wanted = 0;
  if (!held_ && !ended_) wanted |= EPOLLIN;
  // If requests are held and all replies have been sent, EPOLLOUT resumes this connection after other
  // connections have been served.
  if (unsent() > 0 || held_) wanted |= EPOLLOUT;
  if (wanted == interest_) return;
  interest_ = wanted;
  poll_set_->Change(fd_, interest_, this);
}

void C10dSession::Drain() {
  if (!open() || std::exchange(draining_, true)) return;
  hub_->store().Forget(id_);
  held_ = false;
  Flush();
  if (!open()) return;
  if (ended_ && unsent() == 0) return Close(absl::OkStatus());
  UpdateInterest();
}

void C10dSession::Close(const absl::Status& why) {
  if (!open()) return;
  owner_->OnClosed(*this, why);
  Release();
}

void C10dSession::Release() {
  if (hub_ != nullptr) {
    hub_->store().Refund(std::exchange(accounted_, 0));
    std::exchange(hub_, nullptr)->Leave(id_);
  }
  if (!open()) return;
  if (std::exchange(polled_, false)) poll_set_->Remove(fd_, this);
  if (draining_) {
    // Discards input that arrived after the last read, so that close() does not reset the connection.
    for (int i = 0; i < kReadsWhenAbandoned; ++i) {
      if (::recv(fd_, Input(), kInputBytes, MSG_DONTWAIT) <= 0) break;
    }
  }
  ::close(std::exchange(fd_, -1));
}

}  // namespace ddprun
