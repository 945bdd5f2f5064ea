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

void FakeAgent::Receive() {
  if (connection_ < 0) connection_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  char packet[kMaxWorkerMessageBytes];
  while (connection_ >= 0) {
    const ssize_t n = recv(connection_, packet, sizeof(packet), MSG_DONTWAIT);
    closed_ = n == 0 || (n < 0 && errno != EAGAIN);
    if (n <= 0) return;
    const std::string_view bytes(packet, static_cast<size_t>(n));
    if (const std::optional<WorkerReport> report = DecodeWorkerReport(bytes)) {
      reports_.push_back(*report);
    } else if (const std::optional<WorkerSurvival> survival = DecodeWorkerSurvival(bytes)) {
      survivals_.push_back(*survival);
    } else if (const std::optional<WorkerPage> page = DecodeWorkerPage(bytes)) {
      pages_.push_back(*page);
    } else {
      Require(false, "neither a report nor a message about survival");
    }
  }
}

bool FakeAgent::AwaitMore(TimePoint deadline) {
  if (closed_) return false;
  const Duration left = deadline - std::chrono::steady_clock::now();
  pollfd p{fd(), POLLIN, 0};
  return poll(&p, 1, static_cast<int>(std::max<int64_t>(0, ToMillis(left)))) > 0;
}

std::optional<WorkerReport> FakeAgent::Next() {
  Receive();
  if (reports_.empty()) return std::nullopt;
  const WorkerReport report = reports_.front();
  reports_.pop_front();
  return report;
}

std::optional<WorkerSurvival> FakeAgent::NextSurvival() {
  Receive();
  if (survivals_.empty()) return std::nullopt;
  const WorkerSurvival survival = survivals_.front();
  survivals_.pop_front();
  return survival;
}

std::optional<WorkerReport> FakeAgent::Await(const std::function<bool(const WorkerReport&)>& fits,
                                             Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    while (std::optional<WorkerReport> report = Next()) {
      if (fits(*report)) return report;
    }
    if (!AwaitMore(deadline)) return std::nullopt;
  }
}

std::optional<WorkerSurvival> FakeAgent::AwaitSurvival(SurvivalState state, Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    while (std::optional<WorkerSurvival> survival = NextSurvival()) {
      if (survival->state == state) return survival;
    }
    if (!AwaitMore(deadline)) return std::nullopt;
  }
}

bool FakeAgent::AwaitClose(Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  do {
    Receive();
  } while (AwaitMore(deadline));
  return closed_;
}

void FakeAgent::HangUp() {
  if (connection_ >= 0) close(connection_);
  connection_ = -1;
  closed_ = false;
}

void FakeAgent::Ask(const AgentRequest& request) { Say(Encode(request)); }

void FakeAgent::Say(std::string_view packet) {
  const bool sent = send(connection_, packet.data(), packet.size(), MSG_NOSIGNAL) >= 0;
  Require(sent || errno == EPIPE || errno == ECONNRESET, "send");
}

}  // namespace ddprun
