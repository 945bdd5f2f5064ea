#include "worker_sdk/agent_channel.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Limits the time that connect() and send() block. The socket itself waits, because poll() does not see that the agent's end
// of a SOCK_SEQPACKET is full.
void LimitSends(int fd, Duration limit) {
  const int64_t us = std::max<int64_t>(1, std::chrono::ceil<std::chrono::microseconds>(limit).count());
  const timeval time = {.tv_sec = static_cast<time_t>(us / 1'000'000),
                        .tv_usec = static_cast<suseconds_t>(us % 1'000'000)};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

Duration TimeLeft(TimePoint deadline) { return deadline - std::chrono::steady_clock::now(); }

// Sends a packet with a descriptor. The socket is empty, so it has room; an error is that of a system that allows no descriptors to be
// sent, and the agent then knows less.
void SendWithDescriptor(int socket, const std::string& packet, int fd) {
  iovec bytes = {.iov_base = const_cast<char*>(packet.data()), .iov_len = packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  [[maybe_unused]] const ssize_t n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

AgentChannel::AgentChannel(std::string socket_name, SharedPage page)
    : name_(std::move(socket_name)), page_(page), changed_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DDPRUN_CHECK(changed_fd_, "no descriptors are left");
}

AgentChannel::~AgentChannel() = default;

AgentChannel::Connection AgentChannel::connection() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return connection_;
}

void AgentChannel::Replace(Connection connection) {
  const std::lock_guard<std::mutex> lock(mu_);
  connection_ = std::move(connection);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(changed_fd_.get(), &one, sizeof(one));
}

void AgentChannel::ClearChanged() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(changed_fd_.get(), &count, sizeof(count));
}

void AgentChannel::Close(const Connection& connection) {
  if (connection == nullptr || connection != this->connection()) return;
  shutdown(connection->get(), SHUT_RDWR);  // the other thread may still have the descriptor
  Replace(nullptr);
}

Status AgentChannel::Connect(Wait wait, Duration limit) {
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  if (name_.empty() || name_.size() >= sizeof(addr.sun_path)) return UnavailableError("there is no agent");
  std::memcpy(addr.sun_path + 1, name_.data(), name_.size());
  const auto len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoToStatus(errno, "opening a socket for the agent");
  // It fails if the agent does not listen. If the agent's backlog is full, it waits.
  if (wait == Wait::kNo) fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  if (wait == Wait::kYes) LimitSends(fd.get(), limit);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&addr), len) != 0) {
    return UnavailableError(StrCat("connecting to the agent: ", std::strerror(errno)));
  }
  fcntl(fd.get(), F_SETFL, 0);
  if (page_.fd >= 0) SendWithDescriptor(fd.get(), Encode(page_.packet), page_.fd);
  // Always fits: the socket has at most one packet.
  if (!introduction_.empty() &&
      send(fd.get(), introduction_.data(), introduction_.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return UnavailableError(StrCat("introducing this worker to the agent: ", std::strerror(errno)));
  }
  Replace(std::make_shared<const UniqueFd>(std::move(fd)));
  return OkStatus();
}

bool AgentChannel::TrySend(std::string_view packet) {
  if (other_version_) return false;
  Connection to = connection();
  if (to == nullptr) {
    if (!Connect(Wait::kNo, {}).ok()) return false;
    to = connection();
  }
  if (to == nullptr) return false;
  if (send(to->get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
  if (errno != EAGAIN && errno != EINTR) Close(to);  // the agent has exited; the next call connects
  return false;
}

Status AgentChannel::Send(std::string_view packet, std::string_view what, Duration limit) {
  const Connection to = connection();
  if (to == nullptr || other_version_) {
    return UnavailableError(StrCat(what, ": there is no connection to the agent"));
  }
  const TimePoint deadline = DeadlineAfter(limit);
  while (true) {
    const Duration left = TimeLeft(deadline);
    if (left > Duration::zero()) {
      LimitSends(to->get(), left);
      if (send(to->get(), packet.data(), packet.size(), MSG_NOSIGNAL) >= 0) return OkStatus();
      if (errno == EINTR) continue;
    }
    const bool full = left <= Duration::zero() || errno == EAGAIN;
    const int error = errno;
    Close(to);
    if (!full) return UnavailableError(StrCat(what, ": sending to the agent: ", std::strerror(error)));
    return DeadlineExceededError(StrCat(what, ": the agent has read nothing for ", ToMillis(limit),
                                        " ms: its socket ", name_, " is full"));
  }
}

Status AgentChannel::Introduce(std::string packet, std::string_view what, Duration limit) {
  introduction_ = std::move(packet);
  if (connection() != nullptr) return Send(introduction_, what, limit);
  return WithContext(Connect(Wait::kYes, limit), what);
}

std::optional<AgentChannel::Message> AgentChannel::Receive(const Connection& connection, bool* ended) {
  char bytes[kMaxWorkerMessageBytes];
  while (connection != nullptr) {
    const ssize_t n = recv(connection->get(), bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n <= 0) {
      *ended = true;
      return std::nullopt;
    }
    if (n > static_cast<ssize_t>(sizeof(bytes))) continue;
    const std::string_view packet(bytes, static_cast<size_t>(n));
    if (const std::optional<int> version = OtherVersion(packet)) {
      if (other_version_.exchange(true)) continue;
      std::fprintf(
          stderr,
          "libddprun: the agent has version %d of the protocol between worker and agent, this library has "
          "version %d: no steps are reported; use the libddprun of the ddprun that starts this job\n",
          *version, kWorkerMessageVersion);
    } else if (const std::optional<AgentRequest> request = DecodeAgentRequest(packet)) {
      return *request;
    } else if (const std::optional<RoundOffer> offer = DecodeRoundOffer(packet)) {
      return *offer;
    }
  }
  return std::nullopt;
}

}  // namespace ddprun
