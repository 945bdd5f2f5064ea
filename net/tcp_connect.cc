#include "net/tcp_connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "net/name_lookup.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

// Time limit for connecting to one address. If packets to that address are dropped, the limit leaves time for
// the host's other addresses.
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

namespace {

using std::chrono::steady_clock;

constexpr Duration kFirstRetry = milliseconds(10);
constexpr Duration kLastRetry = seconds(1);

}  // namespace

absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt) {
  const TimePoint deadline = steady_clock::now() + timeout;
  std::minstd_rand random(std::random_device{}());
  for (Duration wait = kFirstRetry;; wait = std::min<Duration>(2 * wait, kLastRetry)) {
    absl::Status status = attempt(deadline);
    if (!absl::IsUnavailable(status)) return WithContext(std::move(status), what);
    // The jitter keeps clients that start at the same time from retrying at the same time.
    const Duration pause = wait / 2 + wait / 2 * (random() % 1024) / 1024;
    if (steady_clock::now() + pause >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(what, " for ", ToMillis(timeout), " ms: ", status.message()));
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ddprun
