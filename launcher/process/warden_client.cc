#include "launcher/process/warden_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "launcher/process/warden_protocol.h"
#include "launcher/process/worker_start.h"

namespace ddprun {
namespace {

using warden_protocol::Event;
using warden_protocol::EventKind;
using warden_protocol::Request;
using warden_protocol::RequestKind;
using warden_protocol::StartStage;

// Slightly longer than the warden's own limit for killing all processes before it exits.
constexpr seconds kWardenEndLimit{11};
// Limit for killing the remaining processes if the warden exceeds kWardenEndLimit.
constexpr seconds kLastKillLimit{1};
// Limit for the warden's exit after it has closed its socket.
constexpr seconds kExitLimit{1};
constexpr std::chrono::microseconds kFirstEndPause{20};
constexpr milliseconds kLongestEndPause{1};
constexpr milliseconds kLookInterval{10};
constexpr milliseconds kRoomInterval{10};
// The limit for answers is a number of pings rather than a duration. A period in which this process and the
// warden are both stopped or suspended therefore counts as at most one ping.
constexpr seconds kPingInterval{1};
constexpr int kMaxUnanswered = 5;

constexpr char kNoWarden[] = "the warden, which starts the workers, is not running";

// Returns the path of the program; empty if the command has none.
std::string FileOf(const SpawnCommand& command) {
  return command.file.empty() && !command.argv.empty() ? command.argv[0] : command.file;
}

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

bool HasNul(const SpawnCommand& command) {
  const auto bad = [](const std::string& s) { return s.find('\0') != std::string::npos; };
  return bad(command.cwd) || bad(command.file) ||
         std::any_of(command.argv.begin(), command.argv.end(), bad) ||
         std::any_of(command.env.begin(), command.env.end(),
                     [&](const auto& var) { return bad(var.first) || bad(var.second); });
}

}  // namespace

std::string ToString(const LeftOver& left_over) {
  if (left_over.pid == 0) return "a process that is not visible in /proc is still alive";
  return absl::StrCat(
      "process ", left_over.pid, left_over.name.empty() ? "" : absl::StrCat(" (", left_over.name, ")"),
      " is still alive, in ",
      left_over.state == '?' ? "an unknown state" : absl::StrCat("state ", std::string(1, left_over.state)),
      left_over.kernel_wait.empty() ? "" : absl::StrCat(", waiting in ", left_over.kernel_wait));
}

void WardenClient::Later(std::function<void()> f) { boost::asio::post(io_, alive_.Guard(std::move(f))); }

WardenClient::WardenClient(boost::asio::io_context& io, WardenHandle warden, Handlers handlers)
    : io_(io),
      socket_(io, warden.socket.Release()),
      room_timer_(io),
      ping_timer_(io),
      look_timer_(io),
      warden_pid_(warden.pid),
      foreign_children_(std::move(warden.foreign_children)),
      handlers_(std::move(handlers)) {
  Read();
}

WardenClient::~WardenClient() {
  alive_.End();
  if (lost_ && !killing_) return;
  if (!lost_) {
    EndWarden();
    kill(warden_pid_, SIGCONT);  // in case the warden is stopped
    const UniqueFd socket(socket_.release());
    if (AwaitWardenEnd(socket.get(), kWardenEndLimit)) return;
    kill(warden_pid_, SIGKILL);
  }
  const TimePoint deadline = std::chrono::steady_clock::now() + kLastKillLimit;
  while (!KillOnce().empty() && std::chrono::steady_clock::now() < deadline) {
    poll(nullptr, 0, static_cast<int>(ToMillis(kLookInterval)));
  }
}

void WardenClient::EndWarden() {
  if (lost_ || std::exchange(ending_, true)) return;
  alive_.End();
  if (line_) shutdown(line_.get(), SHUT_RDWR);
  // The warden then reads end of file and exits. Its exit closes the other direction of the socket.
  shutdown(socket_.native_handle(), SHUT_WR);
}

void WardenClient::Spawn(WorkerId id, const SpawnCommand& command) {
  workers_[id] = {.program = FileOf(command), .cwd = command.cwd, .started = false};
  const auto fail = [this, id](absl::Status why) {
    Later([this, id, why = std::move(why)] { End(id, NeverStarted{why}); });
  };
  if (lost_) return fail(absl::UnavailableError(kNoWarden));
  if (command.argv.empty()) return fail(absl::InvalidArgumentError("no program to start"));
  if (HasNul(command)) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat("cannot start ", FileOf(command), ": its arguments or environment contain a NUL byte")));
  }
  Message message = {.request = {.kind = RequestKind::kSpawn, .id = id}};
  CPU_ZERO(&message.request.cpus);
  for (const int cpu : command.cpus) CPU_SET(cpu, &message.request.cpus);
  message.request.has_cpus = !command.cpus.empty();
  for (const int signo : command.ignored) message.request.ignored |= uint64_t{1} << signo;
  for (const int fd : {command.stdin_fd, command.stdout_fd, command.stderr_fd}) {
    message.fds.push_back(Duplicate(fd));
    if (!message.fds.back()) return fail(StartError(StartStage::kReceive, errno, FileOf(command), ""));
  }
  message.fds.push_back(
      MakeSpawnFile(command.cwd, FileOf(command), command.argv, command.env, message.request));
  if (!message.fds.back()) return fail(StartError(StartStage::kReceive, errno, FileOf(command), ""));
  Send(std::move(message));
  Watch();
}

void WardenClient::Signal(WorkerId id, int signo) {
  Send({.request = {.kind = RequestKind::kSignal, .signo = signo, .id = id}});
}

void WardenClient::SignalAll(int signo) {
  Send({.request = {.kind = RequestKind::kSignalAll, .signo = signo}});
}

void WardenClient::KillAll(Duration limit, KillAllHandler done, const std::vector<WorkerId>& spare) {
  const uint64_t id = next_kill_++;
  kills_[id] = {.done = std::move(done), .pings_left = limit / kPingInterval + kMaxUnanswered};
  if (lost_) {
    // If a KillWithoutWarden is already in progress, it may call `done`. Otherwise the KillWithoutWarden
    // posted here does.
    return Later([this, limit] { KillWithoutWarden(std::chrono::steady_clock::now() + limit); });
  }
  for (const WorkerId worker : spare) Send({.request = {.kind = RequestKind::kSpare, .id = worker}});
  const auto limit_ms = static_cast<uint32_t>(std::clamp<int64_t>(ToMillis(limit), 0, INT32_MAX));
  Send({.request = {.kind = RequestKind::kKillAll, .id = id, .limit_ms = limit_ms}});
  Watch();
}

void WardenClient::Fence(BootTime deadline) {
  Send({.request = {.kind = RequestKind::kFence, .deadline_ns = deadline.time_since_epoch().count()}});
}

void WardenClient::Unfence() { Send({.request = {.kind = RequestKind::kUnfence}}); }

void WardenClient::RemoveAtEnd(int fd) {
  Message message = {.request = {.kind = RequestKind::kRemoveAtEnd}};
  message.fds.push_back(Duplicate(fd));
  if (message.fds.back()) Send(std::move(message));
}

absl::Status WardenClient::LastWords(int fd, const std::string& words, SayAt when) {
  DropLastWords();
  Message message = {.request = {.kind = RequestKind::kLastWords, .bytes = words.size()}};
  message.fds.push_back(Duplicate(fd));
  message.fds.push_back(MemoryFile(words));
  UniqueFd line(Duplicate(fd));
  if (!message.fds[0] || !message.fds[1] || !line)
    return absl::ResourceExhaustedError("no descriptors are left");
  if (lost_ || ending_) return absl::UnavailableError(kNoWarden);
  if (when == SayAt::kDeathOnly) line_ = std::move(line);
  Send(std::move(message));
  return absl::OkStatus();
}

void WardenClient::DropLastWords() {
  line_.Reset();
  Send({.request = {.kind = RequestKind::kLastWords}});
}

void WardenClient::Send(Message message) {
  if (lost_) return;
  outbox_.push_back(std::move(message));
  if (!waiting_for_room_) Flush();
}

void WardenClient::Flush() {
  while (!outbox_.empty()) {
    Message& next = outbox_.front();
    iovec data = {.iov_base = &next.request, .iov_len = sizeof(Request)};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!next.fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(next.fds.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(next.fds.size() * sizeof(int));
      for (size_t i = 0; i < next.fds.size(); ++i) {
        const int fd = next.fds[i].get();
        std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
      }
    }
    if (sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EINTR) continue;
      const auto flush_again = alive_.Guard([this](const boost::system::error_code& error) {
        waiting_for_room_ = false;
        if (!error && !lost_) Flush();
      });
      if (errno == EAGAIN) {
        waiting_for_room_ = true;
        socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write, flush_again);
      } else if (errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS) {
        // The kernel is short of memory, or too many descriptors are in flight to the warden. The socket
        // does not report when this condition ends, so retry after a pause.
        waiting_for_room_ = true;
        room_timer_.expires_after(kRoomInterval);
        room_timer_.async_wait(flush_again);
      }
      return;  // any other error means that the warden has ended, which Read() detects
    }
    outbox_.pop_front();
  }
}

void WardenClient::Read() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     alive_.Guard([this](const boost::system::error_code& error) {
                       if (error || lost_) return;
                       if (!ReadEvents()) return LoseWarden();
                       Read();
                     }));
}

bool WardenClient::ReadEvents() {
  while (true) {
    Event event;
    const ssize_t n = recv(socket_.native_handle(), &event, sizeof event, MSG_DONTWAIT);
    // If the warden was killed, recv() may fail with ECONNRESET before it returns the last messages.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n != sizeof event) return false;
    unanswered_ = 0;
    OnEvent(event);
  }
}

void WardenClient::OnEvent(const Event& event) {
  switch (event.kind) {
    case EventKind::kStarted:
      workers_[event.id].started = true;
      handlers_.started(event.id, event.pid);
      return;
    case EventKind::kSlowStart:
      if (handlers_.slow_start) {
        handlers_.slow_start(event.id, {event.pid, event.state, event.comm, event.wait});
      }
      return;
    case EventKind::kNeverStarted: {
      const Worker& worker = workers_[event.id];
      return End(event.id, NeverStarted{StartError(event.stage, event.error, worker.program, worker.cwd)});
    }
    case EventKind::kExited:
      return End(event.id, ExitInfoFromWaitStatus(event.wait_status),
                 {.user = std::chrono::microseconds(event.user_us),
                  .system = std::chrono::microseconds(event.system_us),
                  .max_rss_bytes = event.max_rss_kib * 1024});
    case EventKind::kLeftOver:
      kills_[event.id].left_over.push_back(
          {.pid = event.pid, .state = event.state, .name = event.comm, .kernel_wait = event.wait});
      return;
    case EventKind::kAllDead: {
      const auto kill = kills_.extract(event.id);
      kill.mapped().done(kill.mapped().left_over);
      return;
    }
    case EventKind::kFenced:
      if (handlers_.fenced) handlers_.fenced();
      return;
    case EventKind::kPong:
      return;
  }
}

void WardenClient::End(WorkerId id, const ExitInfo& exit, const ResourceUse& use) {
  workers_.erase(id);
  handlers_.ended(id, exit, use);
}

void WardenClient::Watch() {
  if (lost_ || std::exchange(watching_, true)) return;
  unanswered_ = 0;
  PingLater();
}

void WardenClient::PingLater() {
  ping_timer_.expires_at(NextTick(std::chrono::steady_clock::now(), kPingInterval));
  ping_timer_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (!error && !lost_) OnPingTime();
  }));
}

// A ping would wake the warden; this check does not.
bool WardenClient::WardenIsIdle() {
  const auto has_started = [](const auto& worker) { return worker.second.started; };
  if (!kills_.empty() || !outbox_.empty()) return false;
  if (!std::all_of(workers_.begin(), workers_.end(), has_started)) return false;
  siginfo_t stop = {};
  if (waitid(P_PID, static_cast<id_t>(warden_pid_), &stop, WSTOPPED | WNOHANG | WNOWAIT) != 0) return false;
  if (stop.si_pid != 0) return false;
  if (--checks_to_ping_ > 0) return true;
  checks_to_ping_ = kMaxUnanswered;
  return false;
}

void WardenClient::CheckWardenForTest() {
  if (!lost_) OnPingTime();
  ping_timer_.cancel();
}

std::string WardenClient::Overdue() {
  if (unanswered_ >= kMaxUnanswered) return absl::StrCat("has not answered for ", kMaxUnanswered, " s");
  for (auto& [id, kill] : kills_) {
    if (kill.pings_left-- <= 0) return "has not killed the workers within its limit";
  }
  return "";
}

void WardenClient::OnPingTime() {
  // Read pending messages first, since they count as answers.
  if ((unanswered_ > 0 || !kills_.empty()) && !ReadEvents()) return LoseWarden();
  if (workers_.empty() && kills_.empty()) {
    watching_ = false;
    return;
  }
  if (const std::string overdue = Overdue(); !overdue.empty()) {
    const std::optional<ProcessEntry> entry = ReadProcess(warden_pid_);
    kill(warden_pid_, SIGKILL);
    return ContinueWithoutWarden(absl::StrCat(
        overdue, entry ? absl::StrCat(", in state ", std::string(1, entry->state)) : "", ", and was killed"));
  }
  if (unanswered_ > 0 || !WardenIsIdle()) {
    ++unanswered_;
    Send({.request = {.kind = RequestKind::kPing}});
  }
  PingLater();
}

std::optional<int> WardenClient::AwaitWardenEnd(int socket, Duration limit) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  Duration pause = kFirstEndPause;
  int status = 0;
  while (waitpid(warden_pid_, &status, WNOHANG) == 0) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return std::nullopt;
    // The kernel closes the warden's end of the socket shortly before the warden can be reaped, so poll() on
    // the socket is enough and no pidfd is needed.
    pollfd end = {.fd = socket, .events = 0, .revents = 0};
    if (poll(&end, 1, static_cast<int>(ToMillis(left))) > 0) std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(2 * pause, kLongestEndPause);
  }
  return status;
}

void WardenClient::LoseWarden() {
  const std::optional<int> status = AwaitWardenEnd(socket_.native_handle(), kExitLimit);
  if (!status) return ContinueWithoutWarden("has closed its socket but does not exit");
  const ExitInfo exit = ExitInfoFromWaitStatus(*status);
  ContinueWithoutWarden(
      absl::StrCat(std::holds_alternative<Exited>(exit) ? "has exited (" : "was killed by a signal (",
                   ToString(exit), ")"));
}

void WardenClient::ContinueWithoutWarden(const std::string& why) {
  lost_ = killing_ = true;
  ended_with_warden_ = std::exchange(workers_, {});
  boost::system::error_code ignored;
  socket_.close(ignored);
  outbox_.clear();
  line_.Reset();
  handlers_.warden_lost(
      absl::UnavailableError(absl::StrCat("the warden (pid ", warden_pid_, "), which starts the workers, ",
                                          why, "; its workers are killed with it")));
  KillWithoutWarden(std::chrono::steady_clock::now() + kWardenEndLimit);
}

std::vector<ProcessEntry> WardenClient::KillOnce() const {
  StopAndKillDescendants(foreign_children_);
  std::vector<ProcessEntry> left = Descendants(foreign_children_);
  std::erase_if(left, [](const ProcessEntry& p) {
    return p.dead() && p.parent == getpid() && waitpid(p.pid, nullptr, WNOHANG) != 0;
  });
  return left;
}

void WardenClient::KillWithoutWarden(TimePoint deadline) {
  killing_ = true;
  const std::vector<ProcessEntry> left = KillOnce();
  if (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    look_timer_.expires_after(kLookInterval);
    look_timer_.async_wait(alive_.Guard([this, deadline](const boost::system::error_code& error) {
      if (!error) KillWithoutWarden(deadline);
    }));
    return;
  }
  killing_ = false;
  std::vector<LeftOver> left_over;
  for (const ProcessEntry& p : left) {
    left_over.push_back(
        {.pid = p.pid, .state = p.state, .name = p.comm, .kernel_wait = KernelWait(p.thread)});
  }
  // Handlers may call Spawn and KillAll; these calls post their own results.
  for (const auto& [id, worker] : std::exchange(ended_with_warden_, {})) {
    if (worker.started) {
      handlers_.ended(id, Signaled{.signo = SIGKILL, .core_dumped = false}, {});
    } else {
      handlers_.ended(id, NeverStarted{absl::UnavailableError(kNoWarden)}, {});
    }
  }
  for (const auto& [id, kill] : std::exchange(kills_, {})) kill.done(left_over);
}

}  // namespace ddprun
