#include "tests/fault/testing/fake_peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ddprun {
namespace {

void Require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::abort();
}

}  // namespace

TakenPort::TakenPort(Kind kind) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  Require(fd_ >= 0 && bind(fd_, any, size) == 0 && getsockname(fd_, any, &size) == 0, "bind");
  port_ = ntohs(address.sin_port);
  if (kind == Kind::kSilent) Require(listen(fd_, SOMAXCONN) == 0, "listen");
}

bool TakenPort::AwaitConnection() {
  pollfd connected = {.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&connected, 1, 10'000) == 1;
}

TakenPort::~TakenPort() { close(fd_); }

FakePeer::FakePeer(std::string answer)
    : TakenPort(Kind::kSilent), answer_(std::move(answer)), thread_([this] { Serve(); }) {}

FakePeer::~FakePeer() {
  shutdown(fd_, SHUT_RDWR);  // makes accept() fail
  thread_.join();
}

void FakePeer::Serve() {
  for (;;) {
    const int connection = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char request[4096];
    // The request is read first, because closing a socket with unread data resets the connection and may
    // discard the answer.
    if (recv(connection, request, sizeof request, 0) > 0 && !answer_.empty()) {
      (void)!send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    close(connection);
  }
}

}  // namespace ddprun
