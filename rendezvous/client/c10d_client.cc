#include "rendezvous/client/c10d_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/c10d_wire.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

// How long a store may take over the answer to a cancelled wait, which it owes at once.
constexpr Duration kCancelTimeout = seconds(5);
constexpr Duration kFirstRetry = milliseconds(10);
constexpr Duration kLastRetry = seconds(1);
// No longer on one address, so that a host that swallows packets leaves time for its other addresses.
constexpr Duration kConnectTimeout = seconds(10);

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

std::string ErrnoText(int error) { return std::strerror(error); }

// Waits until `fd` has one of `events`; kDeadlineExceeded if it has none by then.
absl::Status WaitFor(int fd, short events, TimePoint deadline) {
  while (true) {
    const Duration left = deadline - steady_clock::now();
    pollfd p{.fd = fd, .events = events, .revents = 0};
    const auto millis = std::clamp<int64_t>(ToMillis(left), 0, 1 << 30);
    const int n = ::poll(&p, 1, static_cast<int>(millis));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", ErrnoText(errno)));
    if (n == 0 && left <= Duration::zero()) return absl::DeadlineExceededError("timed out");
  }
}

absl::StatusOr<Fd> ConnectTo(const addrinfo& address, TimePoint deadline) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (fd.get() < 0) return absl::UnavailableError(absl::StrCat("socket: ", ErrnoText(errno)));
  int error = 0;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return absl::UnavailableError(ErrnoText(errno));
    if (!WaitFor(fd.get(), POLLOUT, deadline).ok()) return absl::UnavailableError("no answer");
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return absl::UnavailableError(ErrnoText(error));
  }
  const int one = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

// One attempt at each address of the host.
absl::StatusOr<Fd> ConnectOnce(const std::string& host, int port, TimePoint deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("the name does not resolve (", ::gai_strerror(error), ")"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  absl::Status last;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const TimePoint limit = std::min<TimePoint>(deadline, steady_clock::now() + kConnectTimeout);
    absl::StatusOr<Fd> fd = ConnectTo(*address, limit);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

}  // namespace

struct C10dClient::Impl {
  std::string endpoint;  // for messages
  Fd fd;
  Duration timeout;     // of calls that wait for nobody
  absl::Status broken;  // why the connection is of no use any more
  std::string out;      // the request being made

  // Everything below returns kUnavailable when the connection breaks, kDeadlineExceeded when time is up.
  absl::Status SendOut(TimePoint deadline);
  absl::Status Receive(char* data, size_t size, TimePoint deadline);
  absl::StatusOr<uint8_t> ReceiveU8(TimePoint deadline);
  absl::StatusOr<int64_t> ReceiveI64(TimePoint deadline);
  absl::StatusOr<std::string> ReceiveBytes(TimePoint deadline);

  // An answer that is late or wrong leaves the connection out of step: nothing more can be asked on it.
  absl::Status Break(absl::Status why, absl::string_view doing) {
    broken = absl::UnavailableError(
        absl::StrCat("store ", endpoint, ", ", doing, ": ", why.message(), "; make a new client"));
    return broken;
  }

  absl::Status Greet(TimePoint deadline);
  absl::Status WaitKeys(absl::Span<const std::string> keys, TimePoint deadline);

  // Sends `request` and reads its reply with `receive`.
  template <typename Receive>
  auto Ask(const c10d::Request& request, TimePoint deadline, Receive receive)
      -> decltype((this->*receive)(deadline)) {
    if (!broken.ok()) return broken;
    out.clear();
    c10d::AppendRequest(request, c10d::Dialect::kVersioned, &out);
    absl::Status sent = SendOut(deadline);
    const absl::string_view name = c10d::Info(c10d::OpOf(request)).name;
    if (!sent.ok()) return Break(std::move(sent), name);
    auto reply = (this->*receive)(deadline);
    if (!reply.ok()) return Break(std::move(reply).status(), name);
    return reply;
  }
  TimePoint Deadline() const { return steady_clock::now() + timeout; }
};

absl::Status C10dClient::Impl::SendOut(TimePoint deadline) {
  absl::string_view rest = out;
  while (!rest.empty()) {
    const ssize_t n = ::send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(WaitFor(fd.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("the connection broke (", ErrnoText(errno), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status C10dClient::Impl::Receive(char* data, size_t size, TimePoint deadline) {
  while (size > 0) {
    RETURN_IF_ERROR(WaitFor(fd.get(), POLLIN, deadline));
    const ssize_t n = ::recv(fd.get(), data, size, 0);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0) {
      return absl::UnavailableError("the store closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("the connection broke (", ErrnoText(errno), ")"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint8_t> C10dClient::Impl::ReceiveU8(TimePoint deadline) {
  char byte;
  RETURN_IF_ERROR(Receive(&byte, 1, deadline));
  return static_cast<uint8_t>(byte);
}

absl::StatusOr<int64_t> C10dClient::Impl::ReceiveI64(TimePoint deadline) {
  char bytes[8];
  RETURN_IF_ERROR(Receive(bytes, sizeof bytes, deadline));
  return c10d::ReadI64(bytes);
}

absl::StatusOr<std::string> C10dClient::Impl::ReceiveBytes(TimePoint deadline) {
  ASSIGN_OR_RETURN(const int64_t size, ReceiveI64(deadline));
  constexpr size_t kPiece = 1 << 20;  // memory follows the bytes, not the length that was declared
  std::string bytes;
  for (auto left = static_cast<uint64_t>(size); left > 0;) {
    const size_t piece = std::min<uint64_t>(left, kPiece);
    bytes.resize(bytes.size() + piece);
    RETURN_IF_ERROR(Receive(bytes.data() + bytes.size() - piece, piece, deadline));
    left -= piece;
  }
  return bytes;
}

absl::Status C10dClient::Impl::Greet(TimePoint deadline) {
  const auto nonce = static_cast<uint32_t>(::getpid());
  out.clear();
  c10d::AppendValidate(&out);
  c10d::AppendRequest(c10d::Ping{nonce}, c10d::Dialect::kVersioned, &out);
  RETURN_IF_ERROR(SendOut(deadline));
  char echo[4];
  if (absl::Status status = Receive(echo, sizeof echo, deadline); !status.ok()) {
    return WithContext(std::move(status), "greeting it as a c10d store");
  }
  if (c10d::ReadU32(echo) != nonce) {
    return absl::FailedPreconditionError("something answers there, but it is no c10d store");
  }
  return absl::OkStatus();
}

absl::Status C10dClient::Impl::WaitKeys(absl::Span<const std::string> keys, TimePoint deadline) {
  if (!broken.ok()) return broken;
  const std::vector<absl::string_view> views(keys.begin(), keys.end());
  out.clear();
  c10d::AppendRequest(c10d::Wait{views}, c10d::Dialect::kVersioned, &out);
  if (absl::Status sent = SendOut(deadline); !sent.ok()) return Break(std::move(sent), "WAIT");
  constexpr auto kStop = static_cast<uint8_t>(c10d::WaitReply::kStopWaiting);
  constexpr auto kCanceled = static_cast<uint8_t>(c10d::WaitReply::kWaitCanceled);

  absl::StatusOr<uint8_t> reply = ReceiveU8(deadline);
  if (reply.ok() && *reply == kStop) return absl::OkStatus();
  if (!absl::IsDeadlineExceeded(reply.status())) {
    return Break(reply.ok() ? absl::InternalError("an answer that is none") : reply.status(), "WAIT");
  }
  // The keys may come while we cancel: then the answer to the wait is read before that to the cancellation.
  const TimePoint cancel_deadline = steady_clock::now() + kCancelTimeout;
  out.clear();
  c10d::AppendRequest(c10d::CancelWait{}, c10d::Dialect::kVersioned, &out);
  absl::Status sent = SendOut(cancel_deadline);
  if (!sent.ok()) return Break(std::move(sent), "CANCEL_WAIT");
  reply = ReceiveU8(cancel_deadline);
  const bool came = reply.ok() && *reply == kStop;
  if (came) reply = ReceiveU8(cancel_deadline);
  if (!reply.ok()) return Break(reply.status(), "CANCEL_WAIT");
  if (*reply != kCanceled) return Break(absl::InternalError("an answer that is none"), "CANCEL_WAIT");
  if (came) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("store ", endpoint, " has no key ", absl::StrJoin(keys, " or "), " yet"));
}

namespace {

std::string StoreKey(absl::string_view key) { return absl::StrCat("/", key); }

std::vector<std::string> StoreKeys(const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const std::string& key : keys) out.push_back(StoreKey(key));
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<C10dClient>> C10dClient::Connect(std::string host, int port,
                                                                Duration timeout) {
  const TimePoint deadline = steady_clock::now() + timeout;
  auto impl = std::make_unique<Impl>();
  impl->endpoint = absl::StrCat(host, ":", port);
  impl->timeout = timeout;
  std::minstd_rand random(std::random_device{}());
  for (Duration wait = kFirstRetry;; wait = std::min<Duration>(2 * wait, kLastRetry)) {
    absl::StatusOr<Fd> fd = ConnectOnce(host, port, deadline);
    absl::Status status = fd.status();
    if (fd.ok()) {
      impl->fd = *std::move(fd);
      status = impl->Greet(deadline);
      if (status.ok()) return absl::WrapUnique(new C10dClient(std::move(impl)));
    }
    const std::string what = absl::StrCat("connecting to the store at ", impl->endpoint);
    if (absl::IsFailedPrecondition(status)) return WithContext(std::move(status), what);
    // Many clients start at once; they should not come back at once.
    const Duration pause = wait / 2 + wait / 2 * (random() % 1024) / 1024;
    if (steady_clock::now() + pause >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(what, " for ", ToMillis(timeout), " ms: ", status.message()));
    }
    std::this_thread::sleep_for(pause);
  }
}

C10dClient::C10dClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dClient::~C10dClient() = default;

absl::Status C10dClient::Set(absl::string_view key, absl::string_view value) {
  if (!impl_->broken.ok()) return impl_->broken;
  impl_->out.clear();
  c10d::AppendRequest(c10d::Set{StoreKey(key), value}, c10d::Dialect::kVersioned, &impl_->out);
  absl::Status sent = impl_->SendOut(impl_->Deadline());
  return sent.ok() ? sent : impl_->Break(std::move(sent), "SET");
}

absl::StatusOr<std::string> C10dClient::Get(absl::string_view key, Duration timeout) {
  const std::string keys[] = {StoreKey(key)};
  RETURN_IF_ERROR(impl_->WaitKeys(keys, steady_clock::now() + timeout));
  return impl_->Ask(c10d::Get{keys[0]}, impl_->Deadline(), &Impl::ReceiveBytes);
}

absl::StatusOr<int64_t> C10dClient::Add(absl::string_view key, int64_t delta) {
  const std::string store_key = StoreKey(key);
  return impl_->Ask(c10d::Add{store_key, delta}, impl_->Deadline(), &Impl::ReceiveI64);
}

absl::StatusOr<std::string> C10dClient::CompareSet(absl::string_view key, absl::string_view expected,
                                                   absl::string_view desired) {
  const std::string store_key = StoreKey(key);
  return impl_->Ask(c10d::CompareSet{store_key, expected, desired}, impl_->Deadline(), &Impl::ReceiveBytes);
}

absl::StatusOr<bool> C10dClient::Check(const std::vector<std::string>& keys) {
  const std::vector<std::string> store_keys = StoreKeys(keys);
  const std::vector<absl::string_view> views(store_keys.begin(), store_keys.end());
  ASSIGN_OR_RETURN(const uint8_t reply, impl_->Ask(c10d::Check{views}, impl_->Deadline(), &Impl::ReceiveU8));
  return reply == static_cast<uint8_t>(c10d::CheckReply::kReady);
}

absl::Status C10dClient::Wait(const std::vector<std::string>& keys, Duration timeout) {
  return impl_->WaitKeys(StoreKeys(keys), steady_clock::now() + timeout);
}

absl::StatusOr<bool> C10dClient::DeleteKey(absl::string_view key) {
  const std::string store_key = StoreKey(key);
  ASSIGN_OR_RETURN(const int64_t deleted,
                   impl_->Ask(c10d::DeleteKey{store_key}, impl_->Deadline(), &Impl::ReceiveI64));
  return deleted > 0;
}

absl::StatusOr<int64_t> C10dClient::NumKeys() {
  return impl_->Ask(c10d::NumKeys{}, impl_->Deadline(), &Impl::ReceiveI64);
}

std::string C10dClient::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST];
  if (::getsockname(impl_->fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  return host;
}

}  // namespace ddprun
