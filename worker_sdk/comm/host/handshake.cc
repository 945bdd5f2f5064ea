#include "worker_sdk/comm/host/handshake.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// How long ConnectTcp retries when there is no route, and the pause between two attempts. After a link comes back, the kernel reports no
// route until it has resolved the neighbor.
constexpr Duration kRouteLimit = seconds(5);
constexpr Duration kRoutePause = milliseconds(100);

using Clock = std::chrono::steady_clock;

// A connection whose greeting does not arrive within kGreetingTimeout is closed. While the greetings of
// kMaxUngreeted connections are outstanding, no further connection is accepted.
constexpr Duration kGreetingTimeout = seconds(2);
constexpr size_t kMaxUngreeted = 256;

Status ErrnoError(std::string_view what) { return ErrnoToStatus(errno, what); }

int PollMillis(TimePoint deadline) {
  return static_cast<int>(std::clamp<int64_t>(ToMillis(deadline - Clock::now()), 0, 1 << 30));
}

Status EndedError() { return CancelledError("communication has ended"); }

Status AwaitReady(int fd, short events, const SetupLimit& limit, std::string_view what) {
  pollfd polls[] = {{.fd = fd, .events = events, .revents = 0},
                    {.fd = limit.ended_fd, .events = POLLIN, .revents = 0}};
  while (true) {
    const int n = poll(polls, std::size(polls), PollMillis(limit.deadline));
    if (n > 0 && polls[1].revents != 0) return EndedError();
    if (n > 0) return OkStatus();
    if (n == 0) return DeadlineExceededError(what);
    if (errno != EINTR) return ErrnoError("poll");
  }
}

sockaddr_un AbstractAddress(std::string_view name, socklen_t* len) {
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  const size_t n = std::min(name.size(), sizeof(addr.sun_path) - 1);
  std::memcpy(addr.sun_path + 1, name.data(), n);
  *len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  return addr;
}

using AddrInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

StatusOr<AddrInfo> NumericAddress(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int rc = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); rc != 0) {
    return InvalidArgumentError(StrCat("not a numeric address: \"", host, "\": ", gai_strerror(rc)));
  }
  return AddrInfo(found, freeaddrinfo);
}

bool IsFromThisUser(int fd) {
  ucred peer{};
  socklen_t len = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

// The errno of a connect() that was in progress.
int ConnectErrno(int fd) {
  int error = 0;
  socklen_t error_len = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
  return error;
}

Status ConnectStatus(int error) {
  return error == 0 ? OkStatus() : UnavailableError(StrCat("connect: ", std::strerror(error)));
}

// `address`: "host port".
StatusOr<AddrInfo> ParseAddress(const std::string& address) {
  const size_t blank = std::min(address.find(' '), address.size());
  return NumericAddress(address.substr(0, blank), address.substr(std::min(blank + 1, address.size())));
}

Status SendGreeting(int fd, const Greeting& greeting) {
  // A new connection's send buffer has room for the whole greeting.
  if (send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting)) {
    return UnavailableError(StrCat("greeting: ", std::strerror(errno)));
  }
  return OkStatus();
}

Status CheckAnswer(const Greeting& answer, const Greeting& greeting) {
  if (answer.magic != Greeting::kMagic || answer.round != greeting.round ||
      answer.run_id_hash != greeting.run_id_hash || answer.from != greeting.to) {
    return AbortedError(StrCat("rank ", answer.from, " of round ", answer.round, " answered, not rank ",
                               greeting.to, " of round ", greeting.round));
  }
  return OkStatus();
}

Status RefusedError() { return UnavailableError("the connection was refused after the greeting"); }

// no_route: set if this host has no route to the address, or no answer from the next host on it.
Status FinishConnect(const UniqueFd& fd, const sockaddr* addr, socklen_t len, const SetupLimit& limit,
                     bool* no_route = nullptr) {
  int error = connect(fd.get(), addr, len) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    DDPRUN_RETURN_IF_ERROR(AwaitReady(fd.get(), POLLOUT, limit, "connect"));
    error = ConnectErrno(fd.get());
  }
  if (no_route != nullptr) *no_route = error == EHOSTUNREACH || error == ENETUNREACH;
  return ConnectStatus(error);
}

StatusOr<Greeting> ReceiveAnswer(const UniqueFd& fd, const SetupLimit& limit, UniqueFd* passed_fd) {
  Greeting answer;
  for (size_t have = 0; have < sizeof(answer);) {
    DDPRUN_RETURN_IF_ERROR(AwaitReady(fd.get(), POLLIN, limit, "waiting for the answer to the greeting"));
    iovec iov{reinterpret_cast<char*>(&answer) + have, sizeof(answer) - have};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd.get(), &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return RefusedError();
    have += static_cast<size_t>(n);
    for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      int received;
      std::memcpy(&received, CMSG_DATA(c), sizeof(received));
      UniqueFd owned(received);
      if (passed_fd != nullptr) *passed_fd = std::move(owned);
    }
  }
  return answer;
}

Status Greet(const UniqueFd& fd, const Greeting& greeting, const SetupLimit& limit, UniqueFd* passed_fd) {
  DDPRUN_RETURN_IF_ERROR(SendGreeting(fd.get(), greeting));
  DDPRUN_ASSIGN_OR_RETURN(const Greeting answer, ReceiveAnswer(fd, limit, passed_fd));
  return CheckAnswer(answer, greeting);
}

}  // namespace

StatusOr<Token> NewToken() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return ErrnoError("getrandom");
  }
  return token;
}

std::string TokenToHex(const Token& token) {
  return ToHex(std::string_view(reinterpret_cast<const char*>(token.data()), token.size()));
}

StatusOr<Token> TokenFromHex(std::string_view hex) {
  Token token;
  const std::optional<std::string> bytes = FromHex(hex);
  if (!bytes || bytes->size() != token.size()) {
    return InvalidArgumentError(StrCat("not a token: \"", hex, "\""));
  }
  std::memcpy(token.data(), bytes->data(), token.size());
  return token;
}

uint64_t HashRunId(std::string_view run_id) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (unsigned char c : run_id) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

StatusOr<Listener> Listener::Tcp(const std::string& host) {
  DDPRUN_ASSIGN_OR_RETURN(const AddrInfo addr, NumericAddress(host, "0"));
  UniqueFd fd(socket(addr->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError("socket");
  if (bind(fd.get(), addr->ai_addr, addr->ai_addrlen) != 0) {
    if (errno != EADDRNOTAVAIL) return ErrnoError(StrCat("bind to ", host));
    // NAT: no interface of this host has the address.
    DDPRUN_ASSIGN_OR_RETURN(const AddrInfo any,
                            NumericAddress(addr->ai_family == AF_INET6 ? "::" : "0.0.0.0", "0"));
    if (bind(fd.get(), any->ai_addr, any->ai_addrlen) != 0) return ErrnoError("bind");
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return ErrnoError("listen");
  sockaddr_storage bound{};
  socklen_t len = sizeof(bound);
  char port[NI_MAXSERV];
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &len) != 0) return ErrnoError("getsockname");
  if (const int rc = getnameinfo(reinterpret_cast<sockaddr*>(&bound), len, nullptr, 0, port, sizeof(port),
                                 NI_NUMERICSERV);
      rc != 0) {
    return InternalError(gai_strerror(rc));
  }
  return Listener(std::move(fd), false, StrCat(host, " ", port));
}

StatusOr<Listener> Listener::Unix() {
  DDPRUN_ASSIGN_OR_RETURN(const Token token, NewToken());
  const std::string name = StrCat("ddprun-comm-", TokenToHex(token));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError("socket");
  socklen_t len;
  const sockaddr_un addr = AbstractAddress(name, &len);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&addr), len) != 0) return ErrnoError("bind");
  if (listen(fd.get(), SOMAXCONN) != 0) return ErrnoError("listen");
  return Listener(std::move(fd), true, name);
}

Listener::Ungreeted::Progress Listener::Ungreeted::Read() {
  const ssize_t n =
      recv(fd.get(), reinterpret_cast<char*>(&greeting) + have, sizeof(greeting) - have, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Progress::kMore : Progress::kBroken;
  if (n == 0) return Progress::kBroken;
  have += static_cast<size_t>(n);
  if (have >= sizeof(greeting.magic) && greeting.magic != Greeting::kMagic) return Progress::kBroken;
  return have == sizeof(greeting) ? Progress::kComplete : Progress::kMore;
}

int Listener::AcceptReady(int max, const Greeted& greeted) {
  const TimePoint now = Clock::now();
  int num_accepted = 0;
  // Iterates backwards, so that an erasure does not move elements that have not been visited yet.
  for (size_t i = ungreeted_.size(); i-- > 0 && num_accepted < max;) {
    Ungreeted& u = ungreeted_[i];
    const auto progress = u.Read();
    if (progress == Ungreeted::Progress::kComplete && greeted(u.greeting, u.fd)) ++num_accepted;
    if (progress != Ungreeted::Progress::kMore || now >= u.deadline) ungreeted_.erase(ungreeted_.begin() + i);
  }
  for (size_t i = 0; i < kMaxUngreeted && num_accepted < max && ungreeted_.size() < kMaxUngreeted; ++i) {
    UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) break;
    if (is_unix_ && !IsFromThisUser(fd.get())) continue;
    Ungreeted u{.fd = std::move(fd), .deadline = now + kGreetingTimeout};
    const auto progress = u.Read();  // the greeting may be here already
    if (progress == Ungreeted::Progress::kComplete && greeted(u.greeting, u.fd)) ++num_accepted;
    if (progress == Ungreeted::Progress::kMore) ungreeted_.push_back(std::move(u));
  }
  return num_accepted;
}

TimePoint Listener::AddPolls(std::vector<pollfd>& polls) const {
  const bool full = ungreeted_.size() >= kMaxUngreeted;
  polls.push_back({.fd = full ? -1 : fd_.get(), .events = POLLIN, .revents = 0});
  TimePoint wake = TimePoint::max();
  for (const Ungreeted& u : ungreeted_) {
    polls.push_back({.fd = u.fd.get(), .events = POLLIN, .revents = 0});
    wake = std::min(wake, u.deadline);
  }
  return wake;
}

Status Listener::Accept(int num_expected, const SetupLimit& limit, const Greeted& greeted) {
  while ((num_expected -= AcceptReady(num_expected, greeted)) > 0) {
    if (Clock::now() >= limit.deadline) return DeadlineExceededError("waiting for connections");
    std::vector<pollfd> polls{{.fd = limit.ended_fd, .events = POLLIN, .revents = 0}};
    const TimePoint wake = std::min(limit.deadline, AddPolls(polls));
    if (poll(polls.data(), polls.size(), PollMillis(wake)) < 0 && errno != EINTR) return ErrnoError("poll");
    if (polls[0].revents != 0) return EndedError();
  }
  return OkStatus();
}

TcpConnecting::TcpConnecting(const std::string& address, const Greeting& greeting) : greeting_(greeting) {
  const StatusOr<AddrInfo> found = ParseAddress(address);
  if (!found.ok()) {
    Fail(found.status());
    return;
  }
  const addrinfo& addr = **found;
  fd_ = UniqueFd(socket(addr.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) {
    Fail(ErrnoError("socket"));
  } else if (connect(fd_.get(), addr.ai_addr, addr.ai_addrlen) != 0 && errno != EINPROGRESS &&
             errno != EINTR) {
    Fail(UnavailableError(StrCat("connect: ", std::strerror(errno))));
  }
}

TcpConnecting::State TcpConnecting::Fail(Status why) {
  why_ = std::move(why);
  return State::kFailed;
}

pollfd TcpConnecting::polled() const {
  return {.fd = fd_.get(), .events = static_cast<short>(connected_ ? POLLIN : POLLOUT), .revents = 0};
}

TcpConnecting::State TcpConnecting::Step() {
  if (!why_.ok()) return State::kFailed;
  if (!connected_) {
    pollfd p = polled();
    if (poll(&p, 1, 0) <= 0) return State::kPending;
    if (Status s = ConnectStatus(ConnectErrno(fd_.get())); !s.ok()) return Fail(std::move(s));
    if (Status s = SendGreeting(fd_.get(), greeting_); !s.ok()) return Fail(std::move(s));
    connected_ = true;
  }
  while (have_ < sizeof(answer_)) {
    const ssize_t n =
        recv(fd_.get(), reinterpret_cast<char*>(&answer_) + have_, sizeof(answer_) - have_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return State::kPending;
    if (n <= 0) return Fail(RefusedError());
    have_ += static_cast<size_t>(n);
  }
  if (Status s = CheckAnswer(answer_, greeting_); !s.ok()) return Fail(std::move(s));
  return State::kDone;
}

StatusOr<UniqueFd> ConnectTcp(const std::string& address, const Greeting& greeting, const SetupLimit& limit) {
  DDPRUN_ASSIGN_OR_RETURN(const AddrInfo addr, ParseAddress(address));
  const TimePoint route_limit = std::min(limit.deadline, Clock::now() + kRouteLimit);
  for (;;) {
    UniqueFd fd(socket(addr->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return ErrnoError("socket");
    bool no_route = false;
    const Status connected = FinishConnect(fd, addr->ai_addr, addr->ai_addrlen, limit, &no_route);
    if (no_route && Clock::now() < route_limit) {
      pollfd ended{.fd = limit.ended_fd, .events = POLLIN, .revents = 0};
      if (poll(&ended, 1, static_cast<int>(ToMillis(kRoutePause))) > 0) return EndedError();
      continue;
    }
    DDPRUN_RETURN_IF_ERROR(connected, address);
    DDPRUN_RETURN_IF_ERROR(Greet(fd, greeting, limit, nullptr), address);
    return fd;
  }
}

StatusOr<UniqueFd> ConnectUnix(const std::string& name, const Greeting& greeting, const SetupLimit& limit,
                               UniqueFd* passed_fd) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError("socket");
  socklen_t len;
  const sockaddr_un addr = AbstractAddress(name, &len);
  DDPRUN_RETURN_IF_ERROR(FinishConnect(fd, reinterpret_cast<const sockaddr*>(&addr), len, limit), name);
  DDPRUN_RETURN_IF_ERROR(Greet(fd, greeting, limit, passed_fd), name);
  return fd;
}

Status Answer(const UniqueFd& fd, const Greeting& greeting, int pass_fd) {
  iovec iov{const_cast<Greeting*>(&greeting), sizeof(greeting)};
  msghdr msg{};
  msg.msg_iov = &iov;
  msg.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (pass_fd >= 0) {
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
  }
  if (sendmsg(fd.get(), &msg, MSG_NOSIGNAL) != sizeof(greeting)) return ErrnoError("answering a greeting");
  return OkStatus();
}

}  // namespace ddprun
