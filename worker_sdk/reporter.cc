#include "worker_sdk/reporter.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "proto/worker.pb.h"

namespace ddprun {
namespace {

constexpr size_t kMaxMessageBytes = 1000;
constexpr size_t kMaxRequestBytes = 1024;  // much longer than any request; longer packets are ignored

proto::WorkerPhase ToProto(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting:
      return proto::WORKER_PHASE_STARTING;
    case WorkerPhase::kLoading:
      return proto::WORKER_PHASE_LOADING;
    case WorkerPhase::kTraining:
      return proto::WORKER_PHASE_TRAINING;
    case WorkerPhase::kSnapshotting:
      return proto::WORKER_PHASE_SNAPSHOTTING;
    case WorkerPhase::kFinishing:
      return proto::WORKER_PHASE_FINISHING;
  }
  return proto::WORKER_PHASE_UNSPECIFIED;
}

// Truncates to kMaxMessageBytes without splitting a UTF-8 character.
absl::string_view Cut(absl::string_view message) {
  if (message.size() <= kMaxMessageBytes) return message;
  size_t n = kMaxMessageBytes;
  while (n > 0 && (static_cast<unsigned char>(message[n]) & 0xC0) == 0x80) --n;
  return message.substr(0, n);
}

}  // namespace

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
  // Succeeds or fails immediately; fails if the agent does not listen or its backlog is full.
  if (connect(fd, reinterpret_cast<const sockaddr*>(&addr), len) != 0) {
    close(fd);
    return false;
  }
  fd_ = fd;
  return true;
}

void Reporter::Report(int64_t step, WorkerPhase phase, absl::string_view message) {
  if (!Connected()) return;
  proto::WorkerReport report;
  report.set_round(env_.round.value());
  report.set_rank(env_.rank.value());
  report.set_local_rank(env_.local_rank.value());
  report.set_pid(getpid());
  report.set_step(step);
  report.set_phase(ToProto(phase));
  const absl::string_view cut = Cut(message);
  report.set_message(cut.data(), cut.size());
  if (snapshot_step_) report.set_snapshot_step(*snapshot_step_);
  const std::string packet = report.SerializeAsString();
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
  char packet[kMaxRequestBytes];
  // recv returns 0 both for an empty packet (a request for round 0 with no flag set) and for a closed
  // connection. The next send detects a closed connection.
  for (ssize_t n; fd_ >= 0 && (n = recv(fd_, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC)) >= 0;) {
    proto::AgentRequest request;
    const bool whole = n <= static_cast<ssize_t>(sizeof(packet));
    if (whole && request.ParseFromArray(packet, static_cast<int>(n)) &&
        request.round() == env_.round.value()) {
      snapshot_requested_ = request.take_snapshot();
    }
    if (n == 0) return;
  }
}

}  // namespace ddprun
