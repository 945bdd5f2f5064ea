#include "worker_sdk/testing/fake_agent.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ddprun {
namespace {

void Require(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::abort();
}

}  // namespace

FakeAgent::FakeAgent() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  socklen_t len = sizeof(sa_family_t);  // the kernel chooses an abstract name
  Require(bind(listener_, reinterpret_cast<sockaddr*>(&addr), len) == 0, "bind");
  len = sizeof(addr);
  Require(getsockname(listener_, reinterpret_cast<sockaddr*>(&addr), &len) == 0, "getsockname");
  name_ = std::string(addr.sun_path + 1, len - offsetof(sockaddr_un, sun_path) - 1);
}

FakeAgent::~FakeAgent() {
  if (connection_ >= 0) close(connection_);
  close(listener_);
}

void FakeAgent::Listen() { Require(listen(listener_, 8) == 0, "listen"); }

std::optional<WorkerReport> FakeAgent::Next() {
  if (connection_ < 0) connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  char packet[4096];
  const ssize_t n = recv(connection_, packet, sizeof(packet), MSG_DONTWAIT);
  if (n <= 0) return std::nullopt;
  std::optional<WorkerReport> report = DecodeWorkerReport({packet, static_cast<size_t>(n)});
  Require(report.has_value(), "not a report");
  return report;
}

std::optional<WorkerReport> FakeAgent::Await(const std::function<bool(const WorkerReport&)>& fits,
                                             Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  bool closed = false;
  for (;;) {
    if (std::optional<WorkerReport> report = Next()) {
      if (fits(*report)) return report;
      continue;
    }
    if (closed) return std::nullopt;
    const Duration left = deadline - std::chrono::steady_clock::now();
    pollfd p{connection_ >= 0 ? connection_ : listener_, POLLIN, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::max<int64_t>(0, ToMillis(left))));
    if (ready == 0) return std::nullopt;
    closed = (p.revents & POLLHUP) != 0;  // reports may still be in the socket
  }
}

void FakeAgent::Ask(const AgentRequest& request) { Say(Encode(request)); }

void FakeAgent::Say(std::string_view packet) {
  Require(send(connection_, packet.data(), packet.size(), MSG_NOSIGNAL) >= 0, "send");
}

}  // namespace ddprun
