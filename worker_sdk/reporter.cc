#include "worker_sdk/reporter.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace ddprun {

Reporter::Reporter(const WorkerEnv& env) : env_(env) {}

Reporter::~Reporter() {
  if (fd_ >= 0) close(fd_);
}

bool Reporter::Connected() {
  if (fd_ >= 0) return true;
  sockaddr_un addr{};
  addr.sun_family = AF_UNIX;
  if (env_.agent_socket.empty() || env_.agent_socket.size() >= sizeof(addr.sun_path)) return false;
  std::memcpy(addr.sun_path + 1, env_.agent_socket.data(), env_.agent_socket.size());
  const auto len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + env_.agent_socket.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  // This connect() does not block. It fails if the agent is not listening or the agent's backlog is full.
  if (connect(fd, reinterpret_cast<const sockaddr*>(&addr), len) != 0) {
    close(fd);
    return false;
  }
  fd_ = fd;
  return true;
}

void Reporter::Report(int64_t step, WorkerPhase phase, std::string_view message) {
  if (other_version_ || !Connected()) return;
  const std::string packet = Encode(WorkerReport{.round = env_.round,
                                                 .rank = env_.rank,
                                                 .local_rank = env_.local_rank,
                                                 .pid = getpid(),
                                                 .step = step,
                                                 .phase = phase,
                                                 .message = std::string(message),
                                                 .snapshot_step = snapshot_step_});
  if (send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
    ++num_sent_;
  } else if (errno != EAGAIN && errno != EINTR) {  // the agent has exited; reconnect on the next call
    close(fd_);
    fd_ = -1;
    return;
  }
  ReceiveRequests();
}

void Reporter::ReportSnapshot(int64_t step) {
  ReceiveRequests();
  snapshot_requested_ = false;
  snapshot_step_ = step;
  Report(step, WorkerPhase::kSnapshotting);
}

void Reporter::ReceiveRequests() {
  char packet[kMaxWorkerMessageBytes];
  // recv returns 0 for a closed connection, which the next send detects.
  for (ssize_t n; fd_ >= 0 && (n = recv(fd_, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC)) > 0;) {
    if (n <= static_cast<ssize_t>(sizeof(packet))) OnPacket({packet, static_cast<size_t>(n)});
  }
}

void Reporter::OnPacket(std::string_view packet) {
  if (const std::optional<int> version = OtherVersion(packet)) {
    if (std::exchange(other_version_, true)) return;
    std::fprintf(
        stderr,
        "libddprun: the agent has version %d of the protocol between worker and agent, this library has "
        "version %d: no steps are reported; use the libddprun of the ddprun that starts this job\n",
        *version, kWorkerMessageVersion);
    return;
  }
  const std::optional<AgentRequest> request = DecodeAgentRequest(packet);
  if (request && request->round == env_.round) snapshot_requested_ = request->take_snapshot;
}

}  // namespace ddprun
