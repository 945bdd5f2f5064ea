#include "net/testing/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"

namespace ddprun {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

std::string Hex(absl::string_view text) {
  return absl::HexStringToBytes(absl::StrReplaceAll(text, {{"..", "00000000000000"}, {" ", ""}}));
}

std::string ToHex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

RawPeer::RawPeer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (fd_ < 0) Die("socket");
}

RawPeer::RawPeer(int port, const std::string& address)
    : fd_(::socket(address.find(':') == std::string::npos ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC,
                   0)) {
  if (fd_ < 0) Die("socket");
  Connect(port, address);
}

RawPeer::RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RawPeer::~RawPeer() { Close(); }

void RawPeer::Connect(int port, const std::string& address) {
  const timeval timeout{.tv_sec = 20, .tv_usec = 0};
  const int one = 1;
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in v4{
      .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) Die("address");
  const int error = is_v4 ? ::connect(fd_, reinterpret_cast<sockaddr*>(&v4), sizeof v4)
                          : ::connect(fd_, reinterpret_cast<sockaddr*>(&v6), sizeof v6);
  if (error != 0) Die("connect");
}

bool RawPeer::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string RawPeer::Receive(size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t n = ::recv(fd_, bytes.data() + have, size - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

RawPeer::End RawPeer::ReceiveToEnd(std::string* bytes) {
  char buffer[4096];
  while (true) {
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) {
      bytes->append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return End::kFin;
    } else if (errno != EINTR) {
      return errno == EAGAIN ? End::kStillOpen : End::kReset;
    }
  }
}

void RawPeer::Shutdown() { ::shutdown(fd_, SHUT_WR); }

void RawPeer::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace ddprun
