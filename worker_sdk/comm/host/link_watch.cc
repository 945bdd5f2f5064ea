#include "worker_sdk/comm/host/link_watch.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr Duration kLeastLimit = seconds(2);
constexpr Duration kProbeEvery = seconds(1);

void SetTcp(int fd, int option, int value) { setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)); }

std::string AddressOf(int fd, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[NI_MAXHOST];
  if (name_of(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "?";
  }
  return text;
}

}  // namespace

Duration SilenceLimit(Duration wanted) {
  return std::max(kLeastLimit, Duration(seconds((wanted + seconds(1) - Duration(1)) / seconds(1))));
}

void WatchLink(int fd, Duration wanted, bool in_flight) {
  const int limit_s = static_cast<int>(SilenceLimit(wanted) / seconds(1));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  // The first probe is sent after one idle second, and another one every second after that. After limit_s
  // unanswered probes, the connection breaks.
  SetTcp(fd, TCP_KEEPIDLE, static_cast<int>(kProbeEvery / seconds(1)));
  SetTcp(fd, TCP_KEEPINTVL, static_cast<int>(kProbeEvery / seconds(1)));
  SetTcp(fd, TCP_KEEPCNT, limit_s);
  // TCP_USER_TIMEOUT overrides TCP_KEEPCNT, so it is set to the total time of these probes.
  if (in_flight) SetTcp(fd, TCP_USER_TIMEOUT, static_cast<int>(ToMillis(SilenceLimit(wanted) + kProbeEvery)));
}

bool IsSilence(int error) {
  switch (error) {
    case ETIMEDOUT:
    // If a router or this host has reported one of these errors, the kernel returns it instead of ETIMEDOUT.
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      return true;
    default:
      return false;
  }
}

Duration UnansweredFor(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_unacked == 0) {
    return Duration::zero();
  }
  return milliseconds(info.tcpi_last_ack_recv);
}

std::string EndsInWords(int fd, int our_node, int peer_node) {
  const std::string ours = StrCat("node ", our_node, " (", AddressOf(fd, getsockname), ")");
  const std::string peers = StrCat("node ", peer_node, " (", AddressOf(fd, getpeername), ")");
  return our_node < peer_node ? StrCat(ours, " and ", peers) : StrCat(peers, " and ", ours);
}

}  // namespace ddprun
