#include "rendezvous/client/c10d_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <variant>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "net/tcp_connect.h"
#include "proto/store_request.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

// Timeout for the reply to CANCEL_WAIT. A store sends that reply immediately.
constexpr Duration kCancelTimeout = seconds(5);

// Checks a request against the limits of stores. A store closes the connection if a request exceeds a limit.
struct Checker {
  StoreRequestCheck check;

  void operator()(const c10d::Ping&) {}
  void operator()(const c10d::Set& r) { check.Key(r.key).Value(r.value); }
  void operator()(const c10d::CompareSet& r) { check.Key(r.key).Value(r.expected).Value(r.desired); }
  void operator()(const c10d::Get& r) { check.Key(r.key); }
  void operator()(const c10d::Add& r) { check.Key(r.key); }
  void operator()(const c10d::Check& r) { Keys(r.keys); }
  void operator()(const c10d::Wait& r) { Keys(r.keys); }
  void operator()(const c10d::CancelWait&) {}
  void operator()(const c10d::NumKeys&) {}
  void operator()(const c10d::DeleteKey& r) { check.Key(r.key); }
  void operator()(const c10d::Append& r) { check.Key(r.key).Value(r.value); }
  void operator()(const c10d::MultiGet& r) { Keys(r.keys); }
  void operator()(const c10d::MultiSet& r) {
    check.NumItems(r.pairs.size());
    for (const c10d::KeyValue& pair : r.pairs) check.Key(pair.key).Value(pair.value);
  }
  void operator()(const c10d::QueuePush& r) { check.Key(r.key).Value(r.value); }
  void operator()(const c10d::QueuePop& r) { check.Key(r.key); }
  void operator()(const c10d::QueueLen& r) { check.Key(r.key); }
  void operator()(const c10d::ListKeys&) {}
  void operator()(const c10d::Barrier& r) { check.Key(r.key).WorldSize(r.world_size); }

 private:
  void Keys(absl::Span<const absl::string_view> keys) {
    check.NumItems(keys.size());
    for (const absl::string_view key : keys) check.Key(key);
  }
};

absl::Status CheckRequest(const c10d::Request& request) {
  Checker checker{StoreRequestCheck(c10d::Info(c10d::OpOf(request)).name)};
  std::visit(checker, request);
  return checker.check.status();
}

absl::Status Broke(int error) {
  return absl::UnavailableError(absl::StrCat("the connection broke (", std::strerror(error), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<C10dConnection>> C10dConnection::Open(const std::string& host, int port,
                                                                     Duration timeout) {
  auto connection = absl::WrapUnique(new C10dConnection(absl::StrCat(host, ":", port), timeout));
  const auto connect = [&](TimePoint deadline) -> absl::Status {
    ASSIGN_OR_RETURN(connection->fd_, TcpConnect(host, port, deadline));
    absl::Status greeted = connection->Greet(deadline);
    if (!greeted.ok()) ::close(std::exchange(connection->fd_, -1));
    // ConnectWithRetries retries only after kUnavailable. A slow store may answer a later attempt.
    return absl::IsDeadlineExceeded(greeted) ? absl::UnavailableError(greeted.message()) : greeted;
  };
  RETURN_IF_ERROR(ConnectWithRetries(absl::StrCat("connecting to the store at ", connection->endpoint_),
                                     timeout, connect));
  return connection;
}

C10dConnection::~C10dConnection() {
  if (fd_ >= 0) ::close(fd_);
}

TimePoint C10dConnection::Deadline() const { return steady_clock::now() + timeout_; }

absl::Status C10dConnection::Break(const absl::Status& why, absl::string_view doing) {
  broken_ = absl::UnavailableError(
      absl::StrCat("store ", endpoint_, ", ", doing, ": ", why.message(), "; make a new client"));
  return broken_;
}

absl::Status C10dConnection::Send(const c10d::Request& request, TimePoint deadline) {
  if (!broken_.ok()) return broken_;
  RETURN_IF_ERROR(CheckRequest(request), absl::StrCat("store ", endpoint_));
  out_.clear();
  c10d::AppendRequest(request, c10d::Dialect::kVersioned, &out_);
  const absl::Status sent = SendOut(deadline);
  return sent.ok() ? sent : Break(sent, c10d::Info(c10d::OpOf(request)).name);
}

absl::Status C10dConnection::SendOut(TimePoint deadline) {
  absl::string_view rest = out_;
  while (!rest.empty()) {
    const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(PollUntil(fd_, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Broke(errno);
    }
  }
  return absl::OkStatus();
}

absl::Status C10dConnection::Receive(char* data, size_t size, TimePoint deadline) {
  while (size > 0) {
    RETURN_IF_ERROR(PollUntil(fd_, POLLIN, deadline));
    const ssize_t n = ::recv(fd_, data, size, 0);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0) {
      return absl::UnavailableError("the store closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return Broke(errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint8_t> C10dConnection::ReceiveU8(TimePoint deadline) {
  char byte;
  RETURN_IF_ERROR(Receive(&byte, 1, deadline));
  return static_cast<uint8_t>(byte);
}

absl::StatusOr<int64_t> C10dConnection::ReceiveI64(TimePoint deadline) {
  char bytes[8];
  RETURN_IF_ERROR(Receive(bytes, sizeof bytes, deadline));
  return c10d::ReadI64(bytes);
}

absl::StatusOr<std::string> C10dConnection::ReceiveBytes(TimePoint deadline) {
  ASSIGN_OR_RETURN(const int64_t size, ReceiveI64(deadline));
  constexpr size_t kPiece = 1 << 20;  // memory grows with the bytes received, not with the declared size
  std::string bytes;
  for (auto left = static_cast<uint64_t>(size); left > 0;) {
    const size_t piece = std::min<uint64_t>(left, kPiece);
    bytes.resize(bytes.size() + piece);
    RETURN_IF_ERROR(Receive(bytes.data() + bytes.size() - piece, piece, deadline));
    left -= piece;
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> C10dConnection::ReceiveList(uint64_t num_items, TimePoint deadline) {
  std::vector<std::string> items;
  for (; num_items > 0; --num_items) {
    ASSIGN_OR_RETURN(std::string item, ReceiveBytes(deadline));
    items.push_back(std::move(item));
  }
  return items;
}

absl::Status C10dConnection::Greet(TimePoint deadline) {
  const auto nonce = static_cast<uint32_t>(::getpid());
  out_.clear();
  c10d::AppendValidate(&out_);
  c10d::AppendRequest(c10d::Ping{nonce}, c10d::Dialect::kVersioned, &out_);
  RETURN_IF_ERROR(SendOut(deadline));
  char echo[4];
  RETURN_IF_ERROR(Receive(echo, sizeof echo, deadline), "checking that the server is a c10d store");
  if (c10d::ReadU32(echo) != nonce) {
    return absl::FailedPreconditionError("the server that answered is not a c10d store");
  }
  return absl::OkStatus();
}

absl::Status C10dConnection::Tell(const c10d::Request& request) { return Send(request, Deadline()); }

absl::Status C10dConnection::Await(const c10d::Request& request, const std::string& awaited,
                                   Duration timeout) {
  constexpr auto kStop = static_cast<uint8_t>(c10d::WaitReply::kStopWaiting);
  constexpr auto kCanceled = static_cast<uint8_t>(c10d::WaitReply::kWaitCanceled);
  const std::string doing = absl::StrCat("waiting for ", awaited);
  const absl::Status invalid = absl::InternalError("unexpected reply");

  const TimePoint deadline = steady_clock::now() + timeout;
  // `timeout` limits only the wait for the reply, because it may be too short for sending many keys.
  RETURN_IF_ERROR(Send(request, Deadline()));
  absl::StatusOr<uint8_t> reply = ReceiveU8(deadline);
  if (reply.ok() && *reply == kStop) return absl::OkStatus();
  if (!absl::IsDeadlineExceeded(reply.status())) return Break(reply.ok() ? invalid : reply.status(), doing);

  // The wait may end while it is being cancelled. Its reply then precedes the reply to CANCEL_WAIT.
  const TimePoint cancel_deadline = steady_clock::now() + kCancelTimeout;
  RETURN_IF_ERROR(Send(c10d::CancelWait{}, cancel_deadline));
  reply = ReceiveU8(cancel_deadline);
  const bool came = reply.ok() && *reply == kStop;
  if (came) reply = ReceiveU8(cancel_deadline);
  if (!reply.ok() || *reply != kCanceled) {
    return Break(reply.ok() ? invalid : reply.status(), absl::StrCat(doing, ", CANCEL_WAIT"));
  }
  if (came) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("store ", endpoint_, ": timed out after ", ToMillis(timeout), " ms ", doing));
}

std::string C10dConnection::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST];
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  return host;
}

}  // namespace ddprun
