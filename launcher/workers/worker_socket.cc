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
#include "proto/utf8.h"

namespace ddprun {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

constexpr Duration kAcceptPause = milliseconds(100);
constexpr size_t kMostPeers = 1024;

// The connection of one worker.
struct Peer {
  Peer(boost::asio::io_context& io, int fd) : descriptor(io, fd) {}

  // Does not block. If the worker's receive buffer is full, the worker has unread requests; this request is
  // then sent again at the worker's next report.
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
  State(boost::asio::io_context& io_context, std::function<void(const WorkerReport&)> report_handler,
        std::function<void(const std::string&)> problem_handler)
      : io(io_context),
        listener(io_context),
        pause(io_context),
        on_report(std::move(report_handler)),
        on_problem(std::move(problem_handler)) {}

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

  // Closes the oldest connection that has not sent a report. Returns false if there is no such connection.
  bool MakeRoom() {
    if (on_problem && !std::exchange(reported_full, true)) {
      on_problem(absl::StrCat(
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

  // Called if no descriptors are left. Pending connections keep the socket readable, so pause before the next
  // accept.
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
      std::array<char, kMaxWorkerMessageBytes> packet;
      const ssize_t n =
          recv(peer->descriptor.native_handle(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (n > 0 && static_cast<size_t>(n) <= packet.size()) {
        self->OnPacket(*peer, {packet.data(), static_cast<size_t>(n)});
      }
      if (!self->closed) Read(self, peer);
    });
  }

  void OnPacket(Peer& peer, std::string_view packet) {
    if (const std::optional<int> version = OtherVersion(packet)) return Answer(peer, *version);
    std::optional<WorkerReport> report = DecodeWorkerReport(packet);
    if (!report) return;
    report->message = Utf8Line({report->message.data(), report->message.size()}, kMaxReportTextBytes);
    peer.reported = true;
    if (report->round == asked_round) peer.Ask(requests, request);
    WorkerReport& newest = last[report->local_rank];
    newest = *std::move(report);
    if (on_report) on_report(newest);
  }

  // Sends the worker a notice that its library has another version. Reports this to the caller once.
  void Answer(Peer& peer, int version) {
    const std::string notice = EncodeVersionNotice();
    send(peer.descriptor.native_handle(), notice.data(), notice.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!on_problem || std::exchange(reported_version, true)) return;
    on_problem(absl::StrCat(
        "a worker's libddprun has version ", version,
        " of the protocol between worker and agent, this agent has version ", kWorkerMessageVersion,
        ": its reports are ignored, and it gets no snapshot requests; use the libddprun of "
        "this ddprun"));
  }

  boost::asio::io_context& io;
  Descriptor listener;
  boost::asio::steady_timer pause;  // delay before the next accept
  std::string name;
  bool closed = false;
  const std::function<void(const WorkerReport&)> on_report;
  const std::function<void(const std::string&)> on_problem;
  const size_t most_peers = MostPeers();
  bool reported_full = false;
  bool reported_version = false;
  std::map<LocalRank, WorkerReport> last;
  std::vector<std::weak_ptr<Peer>> peers;  // oldest first; owned by their read handlers

  uint64_t requests = 0;  // number of AskForSnapshot calls
  std::string request;    // the last request, encoded
  Round asked_round{-1};  // the round of the last request
};

WorkerSocket::WorkerSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<WorkerSocket>> WorkerSocket::Open(
    boost::asio::io_context& io, std::function<void(const WorkerReport&)> on_report,
    std::function<void(const std::string&)> on_problem) {
  const auto failed = [](absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot ", what, " the socket for workers' reports: ", std::strerror(errno)));
  };
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return failed("open");
  auto state = std::make_shared<State>(io, std::move(on_report), std::move(on_problem));
  state->listener.assign(fd);
  // bind() without a name lets the kernel choose a free abstract name.
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

std::optional<WorkerReport> WorkerSocket::Last(Round round, LocalRank local_rank) const {
  const auto it = state_->last.find(local_rank);
  if (it == state_->last.end() || it->second.round != round) return std::nullopt;
  return it->second;
}

std::optional<WorkerReport> WorkerSocket::Slowest(Round round) const {
  const WorkerReport* slowest = nullptr;
  for (const auto& [rank, report] : state_->last) {
    if (report.round != round) continue;
    if (slowest == nullptr || report.step < slowest->step) slowest = &report;
  }
  if (slowest == nullptr) return std::nullopt;
  return *slowest;
}

int64_t WorkerSocket::FurthestStep(Round round) const {
  int64_t furthest = 0;
  for (const auto& [rank, report] : state_->last) {
    if (report.round == round) furthest = std::max(furthest, report.step);
  }
  return furthest;
}

void WorkerSocket::AskForSnapshot(Round round) {
  state_->request = Encode(AgentRequest{.round = round, .take_snapshot = true});
  state_->asked_round = round;
  ++state_->requests;
  for (const std::weak_ptr<Peer>& peer : state_->peers) {
    if (const auto worker = peer.lock()) worker->Ask(state_->requests, state_->request);
  }
}

}  // namespace ddprun
