#include "worker_sdk/store/tcp_dial.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// An address that does not answer must leave time for the host's other addresses.
constexpr Duration kAddressLimit = seconds(10);

// getaddrinfo() has no deadline, so it runs in a thread of its own, unless `host` is an address. The thread of
// a lookup that takes longer ends when the resolver gives up.
struct Lookup {
  int result = 0;
  int error = 0;  // errno, if result is EAI_SYSTEM
  std::vector<Address> addresses;
  UniqueFd done;  // an eventfd: readable when the members above are set. Not used if `host` is an address
};

void Resolve(const std::string& host, int flags, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  lookup.result = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  lookup.error = errno;
  if (lookup.result != 0) return;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Address& address = lookup.addresses.emplace_back();
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    address.size = a->ai_addrlen;
  }
  freeaddrinfo(found);
}

StatusOr<std::vector<Address>> AddressesOf(const std::string& host, TimePoint deadline, int cancel_fd) {
  const auto lookup = std::make_shared<Lookup>();
  Resolve(host, AI_NUMERICHOST, *lookup);
  if (lookup->result == 0) return std::move(lookup->addresses);
  lookup->done = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!lookup->done) return UnavailableError(StrCat("cannot resolve ", host, ": no descriptors are left"));
  // The program's signal handlers must not run on the thread, which inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([host, lookup] {
      Resolve(host, 0, *lookup);
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = write(lookup->done.get(), &one, sizeof one);
    }).detach();
  } catch (const std::system_error&) {  // no thread is available
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return UnavailableError(StrCat("cannot resolve ", host, ": no thread is available"));
  const Status answered = AwaitReady(lookup->done.get(), POLLIN, deadline, cancel_fd);
  if (IsDeadlineExceeded(answered)) {
    return UnavailableError(StrCat("cannot resolve ", host, ": the resolver did not answer in time"));
  }
  DDPRUN_RETURN_IF_ERROR(answered);
  if (lookup->result != 0) {
    const char* why =
        lookup->result == EAI_SYSTEM ? std::strerror(lookup->error) : gai_strerror(lookup->result);
    return UnavailableError(StrCat("cannot resolve ", host, ": ", why));
  }
  return std::move(lookup->addresses);
}

void SetPort(Address& address, int port) {
  const auto network = htons(static_cast<uint16_t>(port));
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = network;
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = network;
  }
}

StatusOr<UniqueFd> ConnectTo(const Address& address, TimePoint deadline, int cancel_fd) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoToStatus(errno, "socket");
  int error = connect(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    const Status ready = AwaitReady(fd.get(), POLLOUT, deadline, cancel_fd);
    if (ready.code() == StatusCode::kCancelled) return ready;
    if (!ready.ok()) return UnavailableError("the connection timed out");
    socklen_t size = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error != 0) return UnavailableError(std::strerror(error));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace

Status AwaitReady(int fd, short events, TimePoint deadline, int cancel_fd) {
  while (true) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    pollfd polls[] = {{.fd = fd, .events = events, .revents = 0},
                      {.fd = cancel_fd, .events = POLLIN, .revents = 0}};
    const int ready = poll(polls, 2, static_cast<int>(std::clamp<int64_t>(ToMillis(left), 0, INT_MAX)));
    if (ready < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
    if (ready > 0) return polls[1].revents != 0 ? CancelledError("cancelled") : OkStatus();
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return DeadlineExceededError("timed out");
  }
}

StatusOr<UniqueFd> DialTcp(const std::string& host, int port, TimePoint deadline, int cancel_fd) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<Address> addresses, AddressesOf(host, deadline, cancel_fd));
  Status last = UnavailableError("the name has no address");
  for (Address& address : addresses) {
    SetPort(address, port);
    StatusOr<UniqueFd> fd =
        ConnectTo(address, std::min(deadline, std::chrono::steady_clock::now() + kAddressLimit), cancel_fd);
    if (fd.ok() || fd.status().code() == StatusCode::kCancelled) return fd;
    last = fd.status();
  }
  return IsUnavailable(last) ? last : UnavailableError(last.message());
}

StatusOr<std::string> LocalAddressTowards(const std::string& host, TimePoint deadline) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<Address> addresses, AddressesOf(host, deadline, /*cancel_fd=*/-1));
  for (Address& address : addresses) {
    SetPort(address, 9);  // any port
    // connect() on a datagram socket sends no packet. It selects the route, which determines the source
    // address.
    const UniqueFd fd(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    char name[NI_MAXHOST];
    if (fd && connect(fd.get(), address.get(), address.size) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), size, name, sizeof name, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return std::string(name);
    }
  }
  return UnavailableError(StrCat("no route to ", host));
}

}  // namespace ddprun
