#include "launcher/workers/worker_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"

namespace ddprun {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

constexpr size_t kMaxReportBytes = 4096;
constexpr Duration kAcceptPause = milliseconds(100);
constexpr size_t kMostPeers = 1024;

// The connection of one worker.
struct Peer {
  Peer(boost::asio::io_context& io, int fd) : descriptor(io, fd) {}

  // Does not block. If the buffer is full, the worker has unread requests, and the request is sent again at
  // its next report.
  void Ask(uint64_t number, const std::string& request) {
    if (asked >= number) return;
    if (send(descriptor.native_handle(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
      asked = number;
    }
  }

  Descriptor descriptor;
  uint64_t asked = 0;     // number of the last request sent
  bool reported = false;  // a valid report has arrived
};

// A quarter of the descriptor limit, so that enough descriptors remain for starting workers.
size_t MostPeers() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostPeers;
  return std::clamp<size_t>(files.rlim_cur / 4, 1, kMostPeers);
}

}  // namespace

struct WorkerSocket::State : public std::enable_shared_from_this<State> {
  State(boost::asio::io_context& io_context, std::function<void(const proto::WorkerReport&)> report_handler,
        std::function<void(const std::string&)> full_handler)
      : io(io_context),
        listener(io_context),
        pause(io_context),
        on_report(std::move(report_handler)),
        on_full(std::move(full_handler)) {}

  void Accept() {
    listener.async_wait(
        Descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
          if (error) return;
          const int fd =
              accept4(self->listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
          if (fd >= 0) {
            // Any local user can connect to an abstract socket; only this user's workers are accepted.
            ucred peer{};
            socklen_t size = sizeof peer;
            if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid()) {
              self->AddPeer(std::make_shared<Peer>(self->io, fd));
            } else {
              close(fd);
            }
          } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            return self->AcceptLater();
          }
          self->Accept();
        });
  }

  void AddPeer(std::shared_ptr<Peer> newcomer) {
    std::erase_if(peers, [](const std::weak_ptr<Peer>& p) { return p.expired(); });
    if (peers.size() >= most_peers && !MakeRoom()) return;  // ~Peer closes the connection
    peers.push_back(newcomer);
    Read(shared_from_this(), std::move(newcomer));
  }

  // Closes the oldest connection that has not sent a report. Returns false if there is none.
  bool MakeRoom() {
    if (on_full && !std::exchange(reported_full, true)) {
      on_full(absl::StrCat(
          "more than ", most_peers,
          " connections to the socket for workers' reports: closing those that have not reported"));
    }
    const auto idle = std::find_if(peers.begin(), peers.end(), [](const std::weak_ptr<Peer>& p) {
      const auto peer = p.lock();
      return peer != nullptr && !peer->reported;
    });
    if (idle == peers.end()) return false;
    boost::system::error_code ignored;
    idle->lock()->descriptor.close(ignored);
    peers.erase(idle);
    return true;
  }

  // No descriptors are left. Pending connections keep the socket readable, so pause before the next accept.
  void AcceptLater() {
    pause.expires_after(kAcceptPause);
    pause.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->closed) self->Accept();
    });
  }

  static void Read(std::shared_ptr<State> self, std::shared_ptr<Peer> peer) {
    Descriptor& descriptor = peer->descriptor;
    descriptor.async_wait(Descriptor::wait_read, [self, peer](const boost::system::error_code& error) {
      if (error || self->closed) return;
      std::array<char, kMaxReportBytes> packet;
      const ssize_t n = recv(peer->descriptor.native_handle(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
      proto::WorkerReport report;
      if (n > 0 && report.ParseFromArray(packet.data(), static_cast<int>(n)) && report.local_rank() >= 0 &&
          report.local_rank() < 1 << 16) {
        peer->reported = true;
        if (report.round() == self->asked_round.value()) peer->Ask(self->requests, self->request);
        const proto::WorkerReport& last = self->last[LocalRank(report.local_rank())] = std::move(report);
        if (self->on_report) self->on_report(last);
      }
      if (!self->closed) Read(self, peer);
    });
  }

  boost::asio::io_context& io;
  Descriptor listener;
  boost::asio::steady_timer pause;  // delay before the next accept
  std::string name;
  bool closed = false;
  const std::function<void(const proto::WorkerReport&)> on_report;
  const std::function<void(const std::string&)> on_full;
  const size_t most_peers = MostPeers();
  bool reported_full = false;
  std::map<LocalRank, proto::WorkerReport> last;
  std::vector<std::weak_ptr<Peer>> peers;  // oldest first; each is owned by its read handler

  uint64_t requests = 0;  // number of AskForSnapshot calls
  std::string request;    // the last request, encoded
  Round asked_round{-1};  // the round of the last request
};

WorkerSocket::WorkerSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<WorkerSocket>> WorkerSocket::Open(
    boost::asio::io_context& io, std::function<void(const proto::WorkerReport&)> on_report,
    std::function<void(const std::string&)> on_full) {
  const auto failed = [](absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot ", what, " the socket for workers' reports: ", std::strerror(errno)));
  };
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return failed("open");
  auto state = std::make_shared<State>(io, std::move(on_report), std::move(on_full));
  state->listener.assign(fd);
  // Binding without a name lets the kernel choose a free abstract one.
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
  state_->pause.cancel();
  boost::system::error_code ignored;
  state_->listener.close(ignored);
}

const std::string& WorkerSocket::name() const { return state_->name; }

std::optional<proto::WorkerReport> WorkerSocket::Last(Round round, LocalRank local_rank) const {
  const auto it = state_->last.find(local_rank);
  if (it == state_->last.end() || it->second.round() != round.value()) return std::nullopt;
  return it->second;
}

std::optional<proto::WorkerReport> WorkerSocket::Slowest(Round round) const {
  const proto::WorkerReport* slowest = nullptr;
  for (const auto& [rank, report] : state_->last) {
    if (report.round() != round.value()) continue;
    if (slowest == nullptr || report.step() < slowest->step()) slowest = &report;
  }
  if (slowest == nullptr) return std::nullopt;
  return *slowest;
}

int64_t WorkerSocket::FurthestStep(Round round) const {
  int64_t furthest = 0;
  for (const auto& [rank, report] : state_->last) {
    if (report.round() == round.value()) furthest = std::max(furthest, report.step());
  }
  return furthest;
}

void WorkerSocket::AskForSnapshot(Round round) {
  proto::AgentRequest request;
  request.set_round(round.value());
  request.set_take_snapshot(true);
  state_->request = request.SerializeAsString();
  state_->asked_round = round;
  ++state_->requests;
  for (const std::weak_ptr<Peer>& peer : state_->peers) {
    if (const auto worker = peer.lock()) worker->Ask(state_->requests, state_->request);
  }
}

}  // namespace ddprun
