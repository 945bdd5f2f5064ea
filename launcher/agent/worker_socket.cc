#include "launcher/agent/worker_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/posix/stream_descriptor.hpp"

namespace ddprun {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

constexpr size_t kMaxReportBytes = 4096;

}  // namespace

struct WorkerSocket::State : public std::enable_shared_from_this<State> {
  explicit State(boost::asio::io_context& io_context) : io(io_context), listener(io_context) {}

  void Accept() {
    listener.async_wait(
        Descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
          if (error) return;
          const int fd =
              accept4(self->listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
          if (fd >= 0) {
            // Anybody on this machine can connect to an abstract socket; only this user's workers are heard.
            ucred peer{};
            socklen_t size = sizeof peer;
            if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid()) {
              Read(self, std::make_shared<Descriptor>(self->io, fd));
            } else {
              close(fd);
            }
          }
          self->Accept();
        });
  }

  static void Read(std::shared_ptr<State> self, std::shared_ptr<Descriptor> peer) {
    Descriptor& descriptor = *peer;
    descriptor.async_wait(Descriptor::wait_read, [self, peer](const boost::system::error_code& error) {
      if (error || self->closed) return;
      std::array<char, kMaxReportBytes> packet;
      const ssize_t n = recv(peer->native_handle(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
      proto::WorkerReport report;
      if (n > 0 && report.ParseFromArray(packet.data(), static_cast<int>(n)) && report.local_rank() >= 0 &&
          report.local_rank() < 1 << 16) {
        self->last[LocalRank(report.local_rank())] = std::move(report);
      }
      Read(self, peer);
    });
  }

  boost::asio::io_context& io;
  Descriptor listener;
  std::string name;
  bool closed = false;
  std::map<LocalRank, proto::WorkerReport> last;
};

WorkerSocket::WorkerSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<WorkerSocket>> WorkerSocket::Open(boost::asio::io_context& io) {
  const auto failed = [](absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot ", what, " the socket for workers' reports: ", std::strerror(errno)));
  };
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return failed("open");
  auto state = std::make_shared<State>(io);
  state->listener.assign(fd);
  // The kernel chooses a free abstract name when none is given.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof address.sun_family;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) return failed("bind");
  size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return failed("name");
  if (listen(fd, SOMAXCONN) != 0) return failed("listen on");
  state->name.assign(address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  state->Accept();
  return std::unique_ptr<WorkerSocket>(new WorkerSocket(std::move(state)));
}

WorkerSocket::~WorkerSocket() {
  state_->closed = true;
  boost::system::error_code ignored;
  state_->listener.close(ignored);
}

const std::string& WorkerSocket::name() const { return state_->name; }

std::optional<proto::WorkerReport> WorkerSocket::Last(Round round, LocalRank local_rank) const {
  const auto it = state_->last.find(local_rank);
  if (it == state_->last.end() || it->second.round() != round.value()) return std::nullopt;
  return it->second;
}

}  // namespace ddprun
