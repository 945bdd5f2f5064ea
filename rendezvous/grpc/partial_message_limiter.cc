#include "rendezvous/grpc/partial_message_limiter.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "boost/asio/ip/tcp.hpp"

namespace ddprun {
namespace {

constexpr Duration kPause = milliseconds(500);
constexpr Duration kPauseWhenMuchComes = milliseconds(50);
constexpr uint64_t kMuch = 1 << 20;  // bytes received on all connections since the last check

// The kernel's tcp_info. glibc declares only its first part.
struct TcpInfo {
  tcp_info known;
  uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
};
static_assert(offsetof(TcpInfo, pacing_rate) == 104);

// Returns the number of bytes that the kernel has received, or nullopt if the connection has ended.
std::optional<uint64_t> Received(int fd) {
  TcpInfo info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.known.tcpi_state != TCP_ESTABLISHED) {
    return std::nullopt;
  }
  return info.bytes_received;
}

// Returns the peer of `fd` as "address:port", where the address has the form of PeerAddress. Returns an empty
// string if `fd` is not connected.
std::string NameOf(int fd) {
  boost::asio::ip::tcp::endpoint endpoint;
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (::getpeername(fd, endpoint.data(), &size) != 0) return "";
  endpoint.resize(size);
  auto address = endpoint.address();
  if (address.is_v6()) {
    auto v6 = address.to_v6();
    v6.scope_id(0);
    address = v6;
    if (v6.is_v4_mapped()) address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6);
  }
  return absl::StrCat(address.to_string(), ":", endpoint.port());
}

}  // namespace

std::string PeerAddress(absl::string_view peer) {
  absl::ConsumePrefix(&peer, "ipv4:");
  absl::ConsumePrefix(&peer, "ipv6:");
  if (const size_t colon = peer.rfind(':'); colon != absl::string_view::npos) peer = peer.substr(0, colon);
  for (const absl::string_view open : {"[", "%5B"}) absl::ConsumePrefix(&peer, open);
  for (const absl::string_view close : {"]", "%5D"}) absl::ConsumeSuffix(&peer, close);
  // A dual-stack socket reports IPv4 peers as IPv4-mapped IPv6 addresses, which workers on other nodes cannot
  // use.
  absl::ConsumePrefix(&peer, "::ffff:");
  return std::string(peer);
}

PartialMessageLimiter::PartialMessageLimiter(boost::asio::io_context& io, const PartialMessageLimits& limits,
                                             OnError on_error)
    : limits_(limits), on_error_(std::move(on_error)), timer_(io) {}

PartialMessageLimiter::~PartialMessageLimiter() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [peer, connection] : connections_) ::close(connection.fd);
}

void PartialMessageLimiter::Watch(int fd) {
  const std::string peer = NameOf(fd);
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (peer.empty() || copy < 0) {
    // The peer has disconnected, or no descriptor is available. The connection must not stay open unwatched.
    ::shutdown(fd, SHUT_RDWR);
    if (copy >= 0) ::close(copy);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    Connection& connection = connections_[peer];
    if (connection.fd >= 0) ::close(connection.fd);  // belongs to an ended connection of this peer
    connection = {.fd = copy};
  }
  if (!awaiting_) Await(kPauseWhenMuchComes);
}

void PartialMessageLimiter::CameWhole(absl::string_view peer, uint64_t bytes) {
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos) return;
  std::string address = PeerAddress(peer);
  if (const size_t scope = address.find('%'); scope != std::string::npos) address.resize(scope);
  absl::MutexLock lock(&mutex_);
  const auto it = connections_.find(absl::StrCat(address, peer.substr(colon)));
  if (it != connections_.end()) it->second.whole += bytes;
}

void PartialMessageLimiter::Await(Duration pause) {
  awaiting_ = true;
  timer_.expires_after(pause);
  timer_.async_wait(alive_.Guard([this](boost::system::error_code) {
    awaiting_ = false;
    const bool much_comes = Look();
    absl::MutexLock lock(&mutex_);
    if (!connections_.empty()) Await(much_comes ? kPauseWhenMuchComes : kPause);
  }));
}

// Checks all connections. Returns true if much data has arrived since the last check; the next check should
// then be soon.
bool PartialMessageLimiter::Look() {
  absl::MutexLock lock(&mutex_);
  uint64_t all = 0, came = 0;
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = it->second;
    const std::optional<uint64_t> received = Received(connection.fd);
    if (!received) {
      ::close(connection.fd);
      connections_.erase(it++);
      continue;
    }
    const uint64_t since = *received - std::exchange(connection.received, *received);
    came += since;
    const uint64_t now = connection.half + since;
    connection.half = now - std::min(now, std::exchange(connection.whole, 0));
    if (connection.half > limits_.one) {
      HangUp(it->first, connection, limits_.one, "a connection");
    } else {
      all += connection.half;
    }
    ++it;
  }
  if (all > limits_.all) {
    const auto most =
        std::max_element(connections_.begin(), connections_.end(),
                         [](const auto& a, const auto& b) { return a.second.half < b.second.half; });
    HangUp(most->first, most->second, limits_.all, "all connections");
  }
  return came > kMuch;
}

void PartialMessageLimiter::HangUp(const std::string& peer, const Connection& connection, uint64_t limit,
                                   absl::string_view scope) {
  ::shutdown(connection.fd, SHUT_RDWR);
  if (!on_error_) return;
  on_error_(peer, absl::ResourceExhaustedError(absl::StrCat("it has sent ", connection.half,
                                                            " bytes of incomplete messages; the limit for ",
                                                            scope, " is ", limit)));
}

}  // namespace ddprun
