#include "rendezvous/server/c10d_session.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/post.hpp"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// One read takes at most so much before others have their turn.
constexpr size_t kSharedInputBytes = 64 << 10;
constexpr int kReadsPerTurn = 4;
// Memory that a connection keeps for answers when it has none.
constexpr size_t kKeptBytes = 16 << 10;

char* SharedInput() {
  thread_local const std::unique_ptr<char[]> buffer(new char[kSharedInputBytes]);
  return buffer.get();
}

void ClearAndTrim(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptBytes) std::string().swap(buffer);
}

absl::Status Broke(int error) {
  return absl::UnavailableError(absl::StrCat("the connection broke: ", std::strerror(error)));
}

}  // namespace

C10dSession::C10dSession(asio::ip::tcp::socket socket, ConnId id, const C10dSessionOptions& options,
                         Owner* owner)
    : socket_(std::move(socket)),
      id_(id),
      options_(options),
      owner_(owner),
      parser_(options.parser, options.legacy) {}

std::string C10dSession::peer() const {
  error_code ec;
  const auto endpoint = socket_.remote_endpoint(ec);
  if (ec) return "a peer that is gone";
  auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return absl::StrCat(address.to_string(), ":", endpoint.port());
}

void C10dSession::Start() { Read(); }

void C10dSession::Read() {
  if (reading_) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(input_), [self = shared_from_this()](error_code ec, size_t size) {
    self->reading_ = false;
    if (self->owner_ == nullptr) return;
    if (ec && ec != asio::error::eof) return self->Close(Broke(ec.value()));
    self->OnRead(size);
  });
}

// `size` bytes are in input_; 0: the peer will send no more.
void C10dSession::OnRead(size_t size) {
  if (size == 0) {
    ended_ = true;
    // What was asked before is still answered.
    if (!held_ && !writing_) Close(absl::OkStatus());
    return;
  }
  if (!draining_) Process({input_.data(), size});
  if (size == input_.size()) TakeWaitingInput();
  if (owner_ != nullptr && !ended_ && !held_) Read();
}

// More than fits into input_ is there, probably.
void C10dSession::TakeWaitingInput() {
  char* const buffer = SharedInput();
  for (int i = 0; i < kReadsPerTurn && owner_ != nullptr && !held_; ++i) {
    const ssize_t n = ::recv(socket_.native_handle(), buffer, kSharedInputBytes, MSG_DONTWAIT);
    if (n <= 0) return;  // nothing, the end, or an error: the next Read tells
    if (!draining_) Process({buffer, static_cast<size_t>(n)});
    if (static_cast<size_t>(n) < kSharedInputBytes) return;
  }
}

void C10dSession::Process(absl::string_view data) {
  held_ = false;
  const absl::Status parsed = parser_.Feed(data, [this](const c10d::Request& request) {
    failed_ = owner_->OnRequest(*this, request);
    held_ = unsent() > options_.max_unsent_bytes;
    return failed_.ok() && !held_;
  });
  Flush();
  if (owner_ == nullptr) return;
  owner_->OnBatchDone();
  if (owner_ == nullptr) return;
  if (!failed_.ok() || !parsed.ok()) return Close(failed_.ok() ? parsed : failed_);
  if (held_ && !writing_) {
    // All was taken at once: go on, when the others have had their turn.
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Resume(); });
  }
  if (parser_.NeedsGrace() && !grace_) StartGrace();
}

void C10dSession::Resume() {
  if (owner_ == nullptr || !held_) return;
  Process("");
  if (owner_ != nullptr && !held_) Read();
}

void C10dSession::StartGrace() {
  grace_.emplace(socket_.get_executor(), options_.grace);
  grace_->async_wait([self = shared_from_this()](error_code) {
    if (self->owner_ == nullptr || self->draining_ || !self->parser_.NeedsGrace()) return;
    // Input that waits to be read came in time; its read is pending.
    error_code ec;
    if (self->socket_.available(ec) > 0) return;
    absl::Status failed;
    const absl::Status parsed = self->parser_.EndGrace([&](const c10d::Request& request) {
      failed = self->owner_->OnRequest(*self, request);
      return failed.ok();
    });
    self->Flush();
    if (self->owner_ != nullptr) self->owner_->OnBatchDone();
    if (self->owner_ != nullptr && !failed.ok()) self->Close(failed);
  });
}

void C10dSession::Flush() {
  if (owner_ == nullptr || writing_ || reply_.empty()) return;
  const ssize_t n =
      ::send(socket_.native_handle(), reply_.data(), reply_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == static_cast<ssize_t>(reply_.size())) return ClearAndTrim(reply_);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return Close(Broke(errno));
  sent_ = n > 0 ? static_cast<size_t>(n) : 0;
  sending_ = std::exchange(reply_, {});
  Write();
}

void C10dSession::Write() {
  writing_ = true;
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](error_code ec, size_t size) {
                             self->writing_ = false;
                             if (self->owner_ == nullptr) return;
                             if (ec) return self->Close(Broke(ec.value()));
                             self->sent_ += size;
                             self->OnWritten();
                           });
}

void C10dSession::OnWritten() {
  if (sent_ < sending_.size()) return Write();
  ClearAndTrim(sending_);
  sent_ = 0;
  Flush();
  if (owner_ == nullptr || writing_) return;
  if (draining_) {
    error_code ec;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  }
  if (held_) return Resume();
  if (ended_) Close(absl::OkStatus());
}

void C10dSession::Drain() {
  if (owner_ == nullptr || draining_) return;
  draining_ = true;
  Flush();
  if (owner_ == nullptr) return;
  error_code ec;
  if (!writing_) socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  if (ended_ && !writing_) return Close(absl::OkStatus());
  held_ = false;
  if (!ended_) Read();
}

void C10dSession::Abandon() {
  owner_ = nullptr;
  grace_.reset();
  error_code ec;
  if (draining_) {
    // What came since the last read is discarded, so that the close sends no reset.
    for (int i = 0; i < kReadsPerTurn; ++i) {
      if (::recv(socket_.native_handle(), SharedInput(), kSharedInputBytes, MSG_DONTWAIT) <= 0) break;
    }
  }
  socket_.close(ec);
}

void C10dSession::Close(const absl::Status& why) {
  const std::shared_ptr<C10dSession> self = shared_from_this();  // OnClosed lets go of us
  Owner* const owner = owner_;
  if (owner == nullptr) return;
  owner->OnClosed(*this, why);
  Abandon();
}

}  // namespace ddprun
