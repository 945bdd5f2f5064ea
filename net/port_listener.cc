#include "net/port_listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "boost/asio/steady_timer.hpp"
#include "net/name_lookup.h"
#include "net/poll_set.h"
#include "net/tcp.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The time between EMFILE and the next attempt to accept. The error persists until a descriptor is closed
// elsewhere, and the system does not report when that happens.
constexpr Duration kAcceptPause = milliseconds(50);
// The maximum number of connections that are accepted before other handlers of the io_context run.
constexpr int kAcceptsPerTurn = 64;
// The maximum number of descriptors that are reserved for other uses. At most a quarter of the limit on open
// files is reserved. The process can therefore start workers and write files, regardless of how many peers
// connect. Without a reserve, gRPC could terminate the process: it does so if no descriptor is available
// when it starts.
constexpr rlim_t kReserved = 32;

// Time limit for resolving a listen address that is given as a name.
constexpr Duration kResolveLimit = seconds(10);

// Returns the lowest reserved descriptor number. The system always allocates the lowest free number.
int FirstReserved() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return INT_MAX;
  const rlim_t first = files.rlim_cur - std::min(kReserved, files.rlim_cur / 4);
  return static_cast<int>(std::min<rlim_t>(first, INT_MAX));
}

enum class Protocol { kC10d, kGrpc, kHttp };

Protocol ProtocolOf(char first) {
  switch (first) {
    case 'P':
    case 0x16:
      return Protocol::kGrpc;
    case 'D':
    case 'G':
    case 'H':
      return Protocol::kHttp;
    default:
      return Protocol::kC10d;
  }
}

absl::Status BindError(const error_code& ec, const std::string& address, int port) {
  const std::string at = absl::StrCat(address.empty() ? "any address" : address, ", port ", port);
  if (ec == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", port, " is taken by another program (`ss -ltnp sport = :", port,
                     "` shows which one): stop that program or give another port; 0 selects a free one"));
  }
  if (ec == asio::error::access_denied) {
    return absl::FailedPreconditionError(
        absl::StrCat("listening on ", at, " requires privileges: give a port >= 1024; 0 selects a free one"));
  }
  if (ec.value() == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(absl::StrCat(
        address,
        " is not an address of this host: give one of its addresses (`ip address` lists them) or 0.0.0.0"));
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", at, ": ", ec.message()));
}

}  // namespace

// A State handles the PollSet events of the listening socket. A Silent handles the events of one accepted
// connection on which no byte has arrived yet.
struct PortListener::State final : std::enable_shared_from_this<PortListener::State>, PollSet::Handler {
  State(asio::io_context& io, PortHandlers handlers)
      : io(io), poll_set(PollSet::Of(io)), handlers(std::move(handlers)), acceptor(io), pause(io) {}

  struct Silent final : PollSet::Handler {
    Silent(State* state, int fd) : state(state), fd(fd) {}
    void OnEvents(uint32_t /*events*/) override { state->OnReadable(this); }

    State* const state;
    const int fd;
  };

  absl::Status Bind(const std::string& address, int port);
  absl::Status AwaitConnections();
  void OnEvents(uint32_t /*events*/) override { Accept(); }
  void Accept();
  void Pause(int error);
  int AcceptUpTo(int count);
  void AwaitFirstByte(int fd);
  void OnReadable(Silent* silent);
  bool OnFirstByte(int fd);
  void Close();

  asio::io_context& io;
  PollSet& poll_set;
  PortHandlers handlers;
  tcp::acceptor acceptor;    // used only to open the listening socket
  int listening = -1;        // the listening socket, which `acceptor` has released; -1 if closed
  tcp protocol = tcp::v6();  // the IP version of the listening socket
  asio::steady_timer pause;
  absl::flat_hash_map<int, std::unique_ptr<Silent>> silent;  // keyed by descriptor
  int64_t num_pauses = 0;
  bool full = false;       // whether on_full was called and no connection has been accepted since
  bool accepting = false;  // whether `listening` is in poll_set
  bool closed = false;
};

absl::Status PortListener::State::Bind(const std::string& address, int port) {
  const auto number = static_cast<uint16_t>(port);
  if (address.empty()) {
    const error_code ec = ListenOnAllAddresses(acceptor, number);
    return ec ? BindError(ec, address, port) : absl::OkStatus();
  }
  error_code ec;
  const absl::StatusOr<std::vector<SocketAddress>> found =
      ResolveName(address, port, std::chrono::steady_clock::now() + kResolveLimit);
  if (!found.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", address, ": ", found.status().message(), "; give an address of this host"));
  }
  for (const SocketAddress& entry : *found) {
    ec = Listen(acceptor, ToEndpoint(entry));
    if (!ec) return absl::OkStatus();
  }
  return BindError(ec, address, port);
}

absl::Status PortListener::State::AwaitConnections() {
  RETURN_IF_ERROR(poll_set.Add(listening, EPOLLIN, this));
  accepting = true;
  return absl::OkStatus();
}

void PortListener::State::Accept() {
  const std::shared_ptr<State> self = shared_from_this();  // a handler may destroy the listener
  const int error = AcceptUpTo(kAcceptsPerTurn);
  if (closed) return;
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) Pause(error);
}

void PortListener::State::Pause(int error) {
  ++num_pauses;
  if (!std::exchange(full, true) && handlers.on_full) {
    handlers.on_full(absl::ResourceExhaustedError(
        absl::StrCat("cannot accept connections: ", std::strerror(error),
                     error == EMFILE ? " (raise `ulimit -n`)" : "", "; existing connections continue")));
  }
  if (std::exchange(accepting, false)) poll_set.Remove(listening, this);
  pause.expires_after(kAcceptPause);
  pause.async_wait([self = shared_from_this()](error_code ec) {
    if (ec || self->closed) return;
    if (!self->AwaitConnections().ok()) self->Pause(ENOMEM);
  });
}

// Accepts up to `count` connections. Returns 0 if more connections may be pending. Otherwise returns the
// errno value of the system call that failed, or EMFILE if only reserved descriptors are left.
int PortListener::State::AcceptUpTo(int count) {
  const int first_reserved = FirstReserved();
  const int lowest_free = ::fcntl(listening, F_DUPFD_CLOEXEC, 0);
  if (lowest_free < 0) return errno;
  ::close(lowest_free);
  if (lowest_free >= first_reserved) return EMFILE;
  for (int i = 0; i < count && !closed; ++i) {
    const int fd = ::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;  // try the next connection
      return errno;
    }
    const bool last = fd >= first_reserved;
    full = false;
    if (!handlers.grpc && !handlers.http) {
      handlers.c10d(fd);
    } else if (!OnFirstByte(fd)) {
      AwaitFirstByte(fd);
    }
    if (last) return EMFILE;
  }
  return 0;
}

void PortListener::State::AwaitFirstByte(int fd) {
  auto peer = std::make_unique<Silent>(this, fd);
  if (poll_set.Add(fd, EPOLLIN, peer.get()).ok()) {
    silent.emplace(fd, std::move(peer));
  } else {
    ::close(fd);
  }
}

void PortListener::State::OnReadable(Silent* peer) {
  const std::shared_ptr<State> self = shared_from_this();
  const int fd = peer->fd;
  poll_set.Remove(fd, peer);
  silent.erase(fd);
  if (!OnFirstByte(fd)) AwaitFirstByte(fd);
}

// Returns false if no byte has arrived yet. Otherwise passes the connection to its handler, or closes it if
// the peer has disconnected, and returns true.
bool PortListener::State::OnFirstByte(int fd) {
  char first;
  const ssize_t n = ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    ::close(fd);
    return true;
  }
  const Protocol spoken = ProtocolOf(first);
  if (spoken == Protocol::kGrpc && handlers.grpc) {
    handlers.grpc(fd);
  } else if (spoken == Protocol::kHttp && handlers.http) {
    tcp::socket socket(io);
    error_code ec;
    socket.assign(protocol, fd, ec);
    if (ec) {
      ::close(fd);
    } else {
      handlers.http(std::move(socket));
    }
  } else {
    handlers.c10d(fd);
  }
  return true;
}

void PortListener::State::Close() {
  closed = true;
  if (std::exchange(accepting, false)) poll_set.Remove(listening, this);
  if (listening >= 0) ::close(std::exchange(listening, -1));
  pause.cancel();
  for (const auto& [fd, peer] : silent) {
    poll_set.Remove(fd, peer.get());
    ::close(fd);
  }
  silent.clear();
}

absl::StatusOr<std::unique_ptr<PortListener>> PortListener::Open(asio::io_context& io,
                                                                 const std::string& address, int port,
                                                                 PortHandlers handlers) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port ", port, " is not valid: give 0 to 65535"));
  }
  auto state = std::make_shared<State>(io, std::move(handlers));
  if (absl::Status status = state->Bind(address, port); !status.ok()) return status;
  error_code ec;
  const auto endpoint = state->acceptor.local_endpoint(ec);
  if (ec) return absl::InternalError(absl::StrCat("cannot get the local port: ", ec.message()));
  state->protocol = endpoint.protocol();
  state->listening = state->acceptor.release(ec);
  if (ec) return absl::InternalError(absl::StrCat("cannot release the listening socket: ", ec.message()));
  if (absl::Status status = state->AwaitConnections(); !status.ok()) {
    state->Close();
    return status;
  }
  return std::unique_ptr<PortListener>(new PortListener(std::move(state), endpoint.port()));
}

PortListener::PortListener(std::shared_ptr<State> state, int port) : state_(std::move(state)), port_(port) {}

PortListener::~PortListener() { state_->Close(); }

int64_t PortListener::num_pauses() const { return state_->num_pauses; }

void PortListener::Close() {
  if (!state_->closed) state_->AcceptUpTo(SOMAXCONN);
  state_->Close();
}

}  // namespace ddprun
