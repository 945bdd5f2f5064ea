#include "net/tcp_connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/name_lookup.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

// No longer on one address, so that a host that swallows packets leaves time for its other addresses.
constexpr Duration kConnectTimeout = seconds(10);

absl::Status ConnectSocket(int fd, const SocketAddress& address, TimePoint deadline) {
  int error = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
    if (!PollUntil(fd, POLLOUT, deadline).ok()) return absl::UnavailableError("no answer");
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return absl::UnavailableError(std::strerror(error));
  }
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return absl::OkStatus();
}

}  // namespace

absl::Status PollUntil(int fd, short events, TimePoint deadline) {
  while (true) {
    const Duration left = deadline - steady_clock::now();
    pollfd p{.fd = fd, .events = events, .revents = 0};
    const auto millis = std::clamp<int64_t>(ToMillis(left), 0, 1 << 30);
    const int n = ::poll(&p, 1, static_cast<int>(millis));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    if (n == 0 && left <= Duration::zero()) return absl::DeadlineExceededError("timed out");
  }
}

absl::StatusOr<int> TcpConnect(const std::string& host, int port, TimePoint deadline) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveName(host, port, deadline);
  if (!addresses.ok()) return absl::UnavailableError(addresses.status().message());
  absl::Status last;
  for (const SocketAddress& address : *addresses) {
    const int fd =
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0) {
      last = absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
      continue;
    }
    last = ConnectSocket(fd, address, std::min<TimePoint>(deadline, steady_clock::now() + kConnectTimeout));
    if (last.ok()) return fd;
    ::close(fd);
  }
  return last;
}

}  // namespace ddprun
