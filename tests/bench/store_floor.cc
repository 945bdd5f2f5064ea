// A bare epoll loop. Its speed is an upper bound for single-threaded c10d servers. It prints its port, has no
// store, and answers the requests of store_load with fixed bytes. Its only state is the list of connections
// that wait for "/go".
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kEvents = 256;
constexpr size_t kInputBytes = 64 << 10;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "store_floor: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
}

// Returns the size, in bytes, of the answer to a request with this first byte.
size_t ReplyBytes(char opcode) {
  switch (opcode) {
    case 0:  // VALIDATE and PING: the number in the PING
      return 4;
    case 4:  // ADD: the sum
      return 8;
    case 6:  // WAIT: one byte
      return 1;
    default:  // GET: a length and a value of 16 bytes
      return 24;
  }
}

// Returns true if `request`, a WAIT or a SET after a VALIDATE, is for "/go", the only key of three bytes.
bool IsForGo(const char* request) {
  return request[0] == 6 ? request[9] == 3 : request[5] == 1 && request[6] == 3;
}

}  // namespace

int main() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (listener < 0 || ::bind(listener, address, size) != 0 || ::listen(listener, SOMAXCONN) != 0 ||
      ::getsockname(listener, address, &size) != 0) {
    Die("listening");
  }
  std::printf("%d\n", ntohs(at.sin_port));
  std::fflush(stdout);

  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) Die("epoll_create1");
  Watch(epoll, listener);
  static char input[kInputBytes];
  static const char reply[32] = {};
  std::vector<int> waiting;
  while (true) {
    epoll_event events[kEvents];
    const int n = ::epoll_wait(epoll, events, kEvents, -1);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        const int peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (peer < 0) Die("accept4");
        const int one = 1;
        ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Watch(epoll, peer);
        continue;
      }
      if (::recv(fd, input, sizeof input, MSG_DONTWAIT) <= 0) {
        ::close(fd);
        continue;
      }
      if (input[0] == 6 && IsForGo(input)) {
        waiting.push_back(fd);
        continue;
      }
      if (::send(fd, reply, ReplyBytes(input[0]), MSG_NOSIGNAL) < 0) ::close(fd);
      if (input[0] != 0 || !IsForGo(input)) continue;
      for (const int waiter : waiting) ::send(waiter, reply, 1, MSG_NOSIGNAL);
      waiting.clear();
    }
  }
}
