#include "worker_sdk/testing/gpu/nccl/sockets.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "base/check.h"
#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {
namespace {

// Whether NCCL_SOCKET_IFNAME allows the interface.
bool IsAllowed(const std::string& name, const std::string& rule) {
  const bool exact = rule[0] == '=', inverse = rule[0] == '^';
  std::istringstream list(rule.substr(exact || inverse ? 1 : 0));
  bool listed = false;
  for (std::string entry; std::getline(list, entry, ',');)
    listed = listed || (exact ? name == entry : name.starts_with(entry));
  return listed != inverse;
}

bool WaitFor(int fd, short events, const Cancel& cancel) {
  pollfd polled[] = {{fd, events, 0}, {cancel.fd(), POLLIN, 0}};
  while (poll(polled, 2, -1) < 0) DDPRUN_CHECK(errno == EINTR, errno);
  return !cancel.fired();
}

UniqueFd NewSocket(const Address& address) {
  UniqueFd fd(socket(address.base.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  DDPRUN_CHECK(fd, "socket: errno " << errno);
  return fd;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Cancel::Cancel() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Cancel::Fire() {
  fired_ = true;
  eventfd_write(event_.get(), 1);
}

void Cancel::Wait(int64_t ms) const {
  pollfd polled{fd(), POLLIN, 0};
  while (!fired() && poll(&polled, 1, static_cast<int>(ms)) < 0) DDPRUN_CHECK(errno == EINTR, errno);
}

Address LocalAddress() {
  ifaddrs* list = nullptr;
  DDPRUN_CHECK(getifaddrs(&list) == 0, errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  const char* const variable = std::getenv("NCCL_SOCKET_IFNAME");
  const std::string rule = variable == nullptr ? "" : variable;
  for (const bool loopback : {false, true}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
      if (rule.empty() ? ((i->ifa_flags & IFF_LOOPBACK) != 0) != loopback : !IsAllowed(i->ifa_name, rule))
        continue;
      Address address{};
      if (i->ifa_addr->sa_family == AF_INET) {
        std::memcpy(&address.v4, i->ifa_addr, sizeof address.v4);
        return address;
      }
      if (i->ifa_addr->sa_family != AF_INET6) continue;
      std::memcpy(&address.v6, i->ifa_addr, sizeof address.v6);
      if (!IN6_IS_ADDR_LINKLOCAL(&address.v6.sin6_addr)) return address;
    }
  }
  Misuse("no network interface with an address; NCCL_SOCKET_IFNAME is '", rule, "'");
}

UniqueFd Listen(Address& address) {
  UniqueFd fd = NewSocket(address);
  address.v4.sin_port = 0;  // at the same place in both kinds of addresses
  socklen_t size = address.size();
  DDPRUN_CHECK(bind(fd.get(), &address.base, size) == 0, "bind: errno " << errno);
  DDPRUN_CHECK(listen(fd.get(), SOMAXCONN) == 0, "listen: errno " << errno);
  DDPRUN_CHECK(getsockname(fd.get(), &address.base, &size) == 0, errno);
  return fd;
}

UniqueFd Accept(int listener, const Cancel& cancel) {
  while (WaitFor(listener, POLLIN, cancel)) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) continue;
    SendAtOnce(fd.get());
    return fd;
  }
  return {};
}

UniqueFd ConnectTo(const Address& address, const Cancel& cancel) {
  UniqueFd fd = NewSocket(address);
  SendAtOnce(fd.get());
  if (connect(fd.get(), &address.base, address.size()) == 0) return fd;
  if (errno != EINPROGRESS || !WaitFor(fd.get(), POLLOUT, cancel)) return {};
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return {};
  return fd;
}

Outcome ReadAll(int fd, void* to, size_t bytes, const Cancel& cancel) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    if (!WaitFor(fd, POLLIN, cancel)) return Outcome::kCancelled;
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return Outcome::kPeerDied;
    if (n < 0) continue;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return Outcome::kDone;
}

Outcome WriteAll(int fd, const void* from, size_t bytes, const Cancel& cancel) {
  for (const auto* at = static_cast<const char*>(from); bytes > 0;) {
    if (!WaitFor(fd, POLLOUT, cancel)) return Outcome::kCancelled;
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return Outcome::kPeerDied;
    if (n < 0) continue;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return Outcome::kDone;
}

}  // namespace ddprun::stand_in
