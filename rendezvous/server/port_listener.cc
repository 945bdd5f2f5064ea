#include "rendezvous/server/port_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "boost/asio/ip/v6_only.hpp"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Without a free descriptor accept fails at once and again; one that is closed elsewhere ends that, and
// nobody tells.
constexpr Duration kAcceptPause = milliseconds(50);
// So many are accepted before others have their turn.
constexpr int kAcceptsPerTurn = 64;

enum class Protocol { kC10d, kGrpc, kHttp };

Protocol ProtocolOf(char first) {
  switch (first) {
    case 'P':
    case 0x16:
      return Protocol::kGrpc;
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
    return absl::FailedPreconditionError(
        absl::StrCat("port ", port, " is taken by another program (`ss -ltnp sport = :", port,
                     "` shows which one): end that, or give another port; 0 is any free one"));
  }
  if (ec == asio::error::access_denied) {
    return absl::FailedPreconditionError(
        absl::StrCat("listening on ", at, " needs privileges: give a port from 1024 on; 0 is any free one"));
  }
  if (ec.value() == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(absl::StrCat(
        address, " is no address of this host: give one that is (`ip address` lists them), or 0.0.0.0"));
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", at, ": ", ec.message()));
}

error_code Listen(const tcp::endpoint& endpoint, tcp::acceptor& acceptor) {
  error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (ec) return ec;
  acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (endpoint.protocol() == tcp::v6()) {
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), ec);
  }
  ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(SOMAXCONN, ec);
  if (!ec) acceptor.non_blocking(true, ec);
  if (ec) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return ec;
}

}  // namespace

struct PortListener::State : std::enable_shared_from_this<PortListener::State> {
  State(asio::io_context& io, PortHandlers handlers)
      : io(io), handlers(std::move(handlers)), acceptor(io), pause(io) {}

  absl::Status Bind(const std::string& address, int port);
  void AwaitConnections();
  void Accept();
  int AcceptUpTo(int count);
  void AwaitFirstByte(tcp::socket socket);
  bool OnFirstByte(tcp::socket& socket);
  void Close();

  asio::io_context& io;
  PortHandlers handlers;
  tcp::acceptor acceptor;
  tcp protocol = tcp::v6();  // of the address that it listens on
  asio::steady_timer pause;
  absl::flat_hash_map<int64_t, tcp::socket> silent;  // by the order of their coming
  int64_t next_silent = 0;
  int64_t num_pauses = 0;
  bool closed = false;
};

absl::Status PortListener::State::Bind(const std::string& address, int port) {
  const auto number = static_cast<uint16_t>(port);
  if (address.empty()) {
    error_code ec = Listen({tcp::v6(), number}, acceptor);
    // A host may have no IPv6.
    if (ec == asio::error::address_family_not_supported || ec.value() == EADDRNOTAVAIL) {
      ec = Listen({tcp::v4(), number}, acceptor);
    }
    return ec ? BindError(ec, address, port) : absl::OkStatus();
  }
  error_code ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(address, absl::StrCat(port), tcp::resolver::passive, ec);
  if (ec) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": it does not resolve (", ec.message(), ")"));
  }
  for (const auto& entry : found) {
    ec = Listen(entry.endpoint(), acceptor);
    if (!ec) return absl::OkStatus();
  }
  return BindError(ec, address, port);
}

void PortListener::State::AwaitConnections() {
  acceptor.async_wait(tcp::acceptor::wait_read, [self = shared_from_this()](error_code ec) {
    if (!ec && !self->closed) self->Accept();
  });
}

void PortListener::State::Accept() {
  const int error = AcceptUpTo(kAcceptsPerTurn);
  if (closed) return;
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
    ++num_pauses;
    pause.expires_after(kAcceptPause);
    pause.async_wait([self = shared_from_this()](error_code ec) {
      if (!ec && !self->closed) self->Accept();
    });
    return;
  }
  AwaitConnections();
}

// Hands over up to `count` connections; returns why there were no more, 0 if there may be.
int PortListener::State::AcceptUpTo(int count) {
  for (int i = 0; i < count && !closed; ++i) {
    const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;  // gone before it was accepted
      return errno;
    }
    tcp::socket socket(io);
    error_code ec;
    socket.assign(protocol, fd, ec);
    if (ec) {
      ::close(fd);
    } else if (!handlers.grpc && !handlers.http) {
      handlers.c10d(std::move(socket));
    } else if (!OnFirstByte(socket)) {
      AwaitFirstByte(std::move(socket));
    }
  }
  return 0;
}

void PortListener::State::AwaitFirstByte(tcp::socket socket) {
  const int64_t id = next_silent++;
  const auto it = silent.emplace(id, std::move(socket)).first;
  it->second.async_wait(tcp::socket::wait_read, [self = shared_from_this(), id](error_code ec) {
    const auto it = self->silent.find(id);
    if (it == self->silent.end()) return;
    tcp::socket socket = std::move(it->second);
    self->silent.erase(it);
    if (ec || self->closed) return;
    if (!self->OnFirstByte(socket)) self->AwaitFirstByte(std::move(socket));
  });
}

// Hands the connection over, or closes it, once that can be decided.
bool PortListener::State::OnFirstByte(tcp::socket& socket) {
  char first;
  const ssize_t n = ::recv(socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  error_code ec;
  if (n <= 0) {
    socket.close(ec);
    return true;
  }
  switch (ProtocolOf(first)) {
    case Protocol::kGrpc:
      if (!handlers.grpc) break;
      if (const int fd = socket.release(ec); !ec) handlers.grpc(fd);
      return true;
    case Protocol::kHttp:
      if (!handlers.http) break;
      handlers.http(std::move(socket));
      return true;
    case Protocol::kC10d:
      break;
  }
  handlers.c10d(std::move(socket));
  return true;
}

void PortListener::State::Close() {
  closed = true;
  error_code ec;
  acceptor.close(ec);
  pause.cancel();
  silent.clear();
}

absl::StatusOr<std::unique_ptr<PortListener>> PortListener::Open(asio::io_context& io,
                                                                 const std::string& address, int port,
                                                                 PortHandlers handlers) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port ", port, " is none: give 0 to 65535"));
  }
  auto state = std::make_shared<State>(io, std::move(handlers));
  if (absl::Status status = state->Bind(address, port); !status.ok()) return status;
  error_code ec;
  const auto endpoint = state->acceptor.local_endpoint(ec);
  if (ec) return absl::InternalError(absl::StrCat("asking for the port: ", ec.message()));
  state->protocol = endpoint.protocol();
  state->AwaitConnections();
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
