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
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/operation_page.h"
#include "base/time.h"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "os/descriptor.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

constexpr Duration kAcceptPause = milliseconds(100);
constexpr size_t kMostPeers = 1024;

// The connection of one worker.
struct Peer {
  Peer(boost::asio::io_context& io, int fd, pid_t process) : descriptor(io, fd), pid(process) {}

  // Does not block. Returns false if the worker's receive buffer is full. Any other error means that the
  // connection is closed, which the read handler detects.
  bool Send(const std::string& packet) {
    const int fd = descriptor.native_handle();
    return send(fd, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
  }
  // For a worker that is not registered. If its receive buffer is full, it has unread requests; this request is
  // then sent again at its next report.
  void Ask(uint64_t number, const std::string& packet) {
    if (asked >= number || !Send(packet)) return;
    Asked(number);
  }
  void Asked(uint64_t number) {
    asked = number;
    lacks_snapshot = true;
    snapshot_before = snapshot;
  }
  // Makes the state of a registered worker the next request, unless it is the one that was sent last.
  void UpdateRequest() {
    levels.take_snapshot = lacks_snapshot;
    levels.stop = stop;
    const std::string newest = Encode(levels);
    request = newest == sent ? "" : newest;
  }

  Descriptor descriptor;
  const pid_t pid;     // of the process that connected
  UniqueFd page = {};  // the memory that it has shared
  LocalRank page_of = {};
  bool reported = false;  // a valid report has arrived

  uint64_t asked = 0;                           // number of the last AskForSnapshot that was passed on
  bool lacks_snapshot = false;                  // the worker has not reported the snapshot of that request
  std::optional<int64_t> snapshot = {};         // the last one that it has reported in its round
  std::optional<int64_t> snapshot_before = {};  // `snapshot` at the time of that request

  // A worker that may survive:
  std::optional<LocalRank> registered = {};
  AgentRequest levels = {};
  std::optional<WorkerStop> stop = {};  // of the last request that was passed on
  // Packets that are not sent yet, in this order; empty: none.
  std::string offer = {};
  std::string request = {};
  std::string sent = {};     // the last request that was sent
  bool awaits_room = false;  // the worker's receive buffer is full
};

// As recv(2), which also counts the bytes of a packet that do not fit. Keeps the last descriptor that came with the packet.
ssize_t Receive(int socket, std::span<char> packet, UniqueFd& sent) {
  iovec bytes = {.iov_base = packet.data(), .iov_len = packet.size()};
  // Padding makes room for two descriptors; the kernel closes others.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(header) + at, sizeof(fd));
      sent.Reset(fd);
    }
  }
  return n;
}

// A quarter of the descriptor limit, of which each has at most two, so that enough descriptors remain for starting workers.
size_t MostPeers() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostPeers;
  return std::clamp<size_t>(files.rlim_cur / 4, 1, kMostPeers);
}

}  // namespace

struct WorkerSocket::State : public std::enable_shared_from_this<State> {
  State(boost::asio::io_context& io_context, std::function<void(const WorkerReport&)> report_handler,
        std::function<void(const std::string&)> problem_handler, SurvivalHandlers survival_handlers)
      : io(io_context),
        listener(io_context),
        pause(io_context),
        on_report(std::move(report_handler)),
        on_problem(std::move(problem_handler)),
        survivals(std::move(survival_handlers)) {}

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
              self->AddPeer(std::make_shared<Peer>(self->io, fd, peer.pid));
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

  // Closes the oldest connection that has not sent a report and is not registered. Returns false if there is none.
  bool MakeRoom() {
    if (on_problem && !std::exchange(reported_full, true)) {
      on_problem(absl::StrCat(
          "more than ", most_peers,
          " connections to the socket for workers' reports: closing those that have not reported"));
    }
    const auto idle = std::find_if(peers.begin(), peers.end(), [](const std::weak_ptr<Peer>& p) {
      const auto peer = p.lock();
      return peer != nullptr && !peer->reported && !peer->registered;
    });
    if (idle == peers.end()) return false;
    boost::system::error_code ignored;
    idle->lock()->descriptor.close(ignored);
    peers.erase(idle);
    return true;
  }

  // The memory that a worker shares; -1: none.
  int PageOf(LocalRank local_rank, pid_t process) const {
    std::shared_ptr<Peer> newest;
    for (const std::weak_ptr<Peer>& weak : peers) {  // oldest first
      const auto peer = weak.lock();
      if (peer == nullptr || !peer->page || peer->page_of != local_rank) continue;
      if (newest == nullptr || newest->pid != process || peer->pid == process) newest = peer;
    }
    return newest == nullptr ? -1 : newest->page.get();
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
      if (self->closed) return;
      if (error) return self->OnClosed(peer);
      std::array<char, kMaxWorkerMessageBytes> packet;
      UniqueFd sent;
      const ssize_t n = Receive(peer->descriptor.native_handle(), packet, sent);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return self->OnClosed(peer);
      if (n > 0 && static_cast<size_t>(n) <= packet.size()) {
        self->OnPacket(peer, {packet.data(), static_cast<size_t>(n)}, std::move(sent));
      }
      if (!self->closed) Read(self, peer);
    });
  }

  void OnClosed(const std::shared_ptr<Peer>& peer) {
    boost::system::error_code ignored;
    peer->descriptor.close(ignored);  // a handler that waits for room may hold the peer
    const std::optional<LocalRank> registered = std::exchange(peer->registered, std::nullopt);
    if (registered) survivals.unregistered(*registered);
  }

  // sent: the descriptor that came with the packet, if one did.
  void OnPacket(const std::shared_ptr<Peer>& peer, std::string_view packet, UniqueFd sent) {
    if (const std::optional<int> version = OtherVersion(packet)) return Answer(*peer, *version);
    if (std::optional<WorkerSurvival> survival = DecodeWorkerSurvival(packet)) {
      return OnSurvival(peer, *std::move(survival));
    }
    if (const std::optional<WorkerPage> page = DecodeWorkerPage(packet)) {
      if (!sent || !IsMemory(sent.get())) return;
      peer->page = std::move(sent);
      peer->page_of = page->local_rank;
      return;
    }
    std::optional<WorkerReport> report = DecodeWorkerReport(packet);
    if (!report) return;
    report->message = Utf8Line({report->message.data(), report->message.size()}, kMaxReportTextBytes);
    peer->reported = true;
    peer->snapshot = report->snapshot_step;
    if (peer->snapshot && peer->snapshot != peer->snapshot_before) peer->lacks_snapshot = false;
    if (report->round == asked_round && !peer->registered) peer->Ask(requests, request);
    WorkerReport& newest = last[report->local_rank];
    newest = *std::move(report);
    if (on_report) on_report(newest);
  }

  void OnSurvival(const std::shared_ptr<Peer>& peer, WorkerSurvival survival) {
    if (survival.round != round || !survivals.asks) return;
    survival.message = Utf8Line({survival.message.data(), survival.message.size()}, kMaxReportTextBytes);
    if (survival.state == SurvivalState::kParked) {
      if (peer->registered == survival.local_rank) survivals.parked(survival);
      return;
    }
    if (peer->registered || Registered(survival.local_rank) != nullptr) return;
    // Before the call, because the handler may answer the worker.
    peer->registered = survival.local_rank;
    peer->levels = {.round = round};
    if (!survivals.asks(survival, peer->pid)) peer->registered.reset();
    if (peer->registered && asked_round == round && peer->asked < requests) RequestSnapshot(peer);
  }

  // Returns the connection that has registered this worker; null if there is none.
  std::shared_ptr<Peer> Registered(LocalRank local_rank) const {
    for (const std::weak_ptr<Peer>& candidate : peers) {
      const std::shared_ptr<Peer> peer = candidate.lock();
      if (peer != nullptr && peer->registered == local_rank) return peer;
    }
    return nullptr;
  }

  // Passes the last AskForSnapshot on to a registered worker of its round.
  void RequestSnapshot(const std::shared_ptr<Peer>& peer) {
    if (peer->levels.round != asked_round) return;
    peer->Asked(requests);
    peer->stop = asked.stop;
    peer->sent.clear();  // a second request for a snapshot may equal the first one
    peer->UpdateRequest();
    Flush(shared_from_this(), peer);
  }

  // Sends to a registered worker what is not sent yet, now or when its receive buffer has room.
  static void Flush(const std::shared_ptr<State>& self, const std::shared_ptr<Peer>& peer) {
    if (peer->awaits_room) return;
    if (!peer->offer.empty() && peer->Send(peer->offer)) peer->offer.clear();
    if (peer->offer.empty() && !peer->request.empty() && peer->Send(peer->request)) {
      peer->sent = std::exchange(peer->request, "");
    }
    if (peer->offer.empty() && peer->request.empty()) return;
    peer->awaits_room = true;
    peer->descriptor.async_wait(Descriptor::wait_write, [self, peer](const boost::system::error_code& error) {
      peer->awaits_room = false;
      if (!error && !self->closed && peer->registered) Flush(self, peer);
    });
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
  const SurvivalHandlers survivals;
  const size_t most_peers = MostPeers();
  bool reported_full = false;
  bool reported_version = false;
  std::map<LocalRank, WorkerReport> last;
  std::vector<std::weak_ptr<Peer>> peers;  // oldest first; owned by their read handlers

  uint64_t requests = 0;  // number of AskForSnapshot calls
  AgentRequest asked;     // the last request
  std::string request;    // the same, encoded
  Round asked_round{-1};  // the round of the last request
  Round round{-1};        // of the last BeginRound
};

WorkerSocket::WorkerSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<WorkerSocket>> WorkerSocket::Open(
    boost::asio::io_context& io, std::function<void(const WorkerReport&)> on_report,
    std::function<void(const std::string&)> on_problem, SurvivalHandlers survivals) {
  const auto failed = [](absl::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot ", what, " the socket for workers' reports: ", std::strerror(errno)));
  };
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return failed("open");
  auto state = std::make_shared<State>(io, std::move(on_report), std::move(on_problem), std::move(survivals));
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

std::optional<WorkerEvidence::Operation> WorkerSocket::Operation(LocalRank local_rank, pid_t process) const {
  const int page = state_->PageOf(local_rank, process);
  return page < 0 ? std::nullopt : ReadOperation(page);
}

std::optional<Duration> WorkerSocket::Waited(LocalRank local_rank, pid_t process) const {
  const int page = state_->PageOf(local_rank, process);
  return page < 0 ? std::nullopt : ReadWaited(page);
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

void WorkerSocket::AskForSnapshot(Round round, const std::optional<WorkerStop>& stop) {
  state_->asked = {.round = round, .take_snapshot = true, .stop = stop};
  state_->request = Encode(state_->asked);
  state_->asked_round = round;
  ++state_->requests;
  for (const std::weak_ptr<Peer>& peer : state_->peers) {
    const auto worker = peer.lock();
    if (worker == nullptr) continue;
    if (worker->registered) {
      state_->RequestSnapshot(worker);
    } else {
      worker->Ask(state_->requests, state_->request);
    }
  }
}

void WorkerSocket::BeginRound(Round round, const std::set<LocalRank>& kept) {
  state_->round = round;
  for (const std::weak_ptr<Peer>& peer : state_->peers) {
    const auto worker = peer.lock();
    if (worker == nullptr || !worker->registered) continue;
    if (kept.count(*worker->registered) == 0) worker->registered.reset();
    worker->lacks_snapshot = false;
    worker->snapshot.reset();
    worker->stop.reset();
  }
}

void WorkerSocket::SetLevels(LocalRank local_rank, const AgentRequest& levels) {
  const std::shared_ptr<Peer> peer = state_->Registered(local_rank);
  if (peer == nullptr) return;
  peer->levels = levels;
  peer->UpdateRequest();
  State::Flush(state_, peer);
}

void WorkerSocket::Offer(LocalRank local_rank, const RoundOffer& offer) {
  const std::shared_ptr<Peer> peer = state_->Registered(local_rank);
  if (peer == nullptr) return;
  peer->levels = {.round = offer.round, .may_survive = peer->levels.may_survive};
  peer->request.clear();
  peer->offer = Encode(offer);
  State::Flush(state_, peer);
}

}  // namespace ddprun
