#include "launcher/process/process_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/spawn_file.h"
#include "launcher/process/start_error.h"

namespace ddprun {
namespace {

using warden_protocol::Event;
using warden_protocol::EventKind;
using warden_protocol::Request;
using warden_protocol::RequestKind;
using warden_protocol::StartStage;

// A little more than the warden gives itself at its end.
constexpr seconds kWardenEndLimit{11};
constexpr milliseconds kLookInterval{10};

// What is run; empty: nothing.
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
  return absl::StrCat(
      "process ", left_over.pid, " (", left_over.name, ") is still there, in state ",
      std::string(1, left_over.state),
      left_over.kernel_wait.empty() ? "" : absl::StrCat(", waiting in ", left_over.kernel_wait));
}

void ProcessClient::Later(std::function<void()> f) { boost::asio::post(io_, alive_.Guard(std::move(f))); }

ProcessClient::ProcessClient(boost::asio::io_context& io, WardenHandle warden, Handlers handlers)
    : io_(io),
      socket_(io, warden.socket.Release()),
      look_timer_(io),
      warden_pid_(warden.pid),
      foreign_children_(std::move(warden.foreign_children)),
      handlers_(std::move(handlers)) {
  Read();
}

ProcessClient::~ProcessClient() {
  alive_.End();
  if (lost_) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  const UniqueFd watch(static_cast<int>(syscall(SYS_pidfd_open, warden_pid_, 0)));
  pollfd end = {.fd = watch.get(), .events = POLLIN, .revents = 0};
  poll(&end, 1, static_cast<int>(ToMillis(kWardenEndLimit)));
  waitpid(warden_pid_, nullptr, WNOHANG);
}

void ProcessClient::Spawn(WorkerId id, const SpawnCommand& command) {
  workers_[id] = {.program = FileOf(command), .cwd = command.cwd};
  const auto fail = [this, id](absl::Status why) {
    Later([this, id, why = std::move(why)] { End(id, NeverStarted{why}); });
  };
  if (lost_) return fail(absl::UnavailableError("the warden, which starts the workers, is gone"));
  if (command.argv.empty()) return fail(absl::InvalidArgumentError("no program to start"));
  if (HasNul(command)) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat("cannot start ", FileOf(command), ": a NUL byte in its arguments or environment")));
  }
  Message message = {.request = {.kind = RequestKind::kSpawn, .id = id}};
  CPU_ZERO(&message.request.cpus);
  for (const int cpu : command.cpus) CPU_SET(cpu, &message.request.cpus);
  message.request.has_cpus = !command.cpus.empty();
  for (const int fd : {command.stdin_fd, command.stdout_fd, command.stderr_fd}) {
    message.fds.push_back(Duplicate(fd));
    if (!message.fds.back()) return fail(StartError(StartStage::kReceive, errno, FileOf(command), ""));
  }
  message.fds.push_back(
      MakeSpawnFile(command.cwd, FileOf(command), command.argv, command.env, message.request));
  if (!message.fds.back()) return fail(StartError(StartStage::kReceive, errno, FileOf(command), ""));
  Send(std::move(message));
}

void ProcessClient::Signal(WorkerId id, int signo) {
  Send({.request = {.kind = RequestKind::kSignal, .signo = signo, .id = id}});
}

void ProcessClient::SignalAll(int signo) {
  Send({.request = {.kind = RequestKind::kSignalAll, .signo = signo}});
}

void ProcessClient::KillAll(Duration limit, KillAllHandler done) {
  const uint64_t id = next_kill_++;
  kills_[id].done = std::move(done);
  if (lost_) {
    // The search that goes on answers; if it is over, one more does.
    return Later([this, limit] { KillWithoutWarden(std::chrono::steady_clock::now() + limit); });
  }
  const auto limit_ms = static_cast<uint32_t>(std::clamp<int64_t>(ToMillis(limit), 0, INT32_MAX));
  Send({.request = {.kind = RequestKind::kKillAll, .id = id, .limit_ms = limit_ms}});
}

void ProcessClient::Fence(BootTime deadline) {
  Send({.request = {.kind = RequestKind::kFence, .deadline_ns = deadline.time_since_epoch().count()}});
}

void ProcessClient::Unfence() { Send({.request = {.kind = RequestKind::kUnfence}}); }

void ProcessClient::RemoveAtEnd(int fd) {
  Message message = {.request = {.kind = RequestKind::kRemoveAtEnd}};
  message.fds.push_back(Duplicate(fd));
  if (message.fds.back()) Send(std::move(message));
}

void ProcessClient::Send(Message message) {
  if (lost_) return;
  outbox_.push_back(std::move(message));
  if (!waiting_for_room_) Flush();
}

void ProcessClient::Flush() {
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
      if (errno != EAGAIN && errno != ETOOMANYREFS) return;  // the warden is gone; the reading side says so
      waiting_for_room_ = true;
      socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                         alive_.Guard([this](const boost::system::error_code& error) {
                           waiting_for_room_ = false;
                           if (!error) Flush();
                         }));
      return;
    }
    outbox_.pop_front();
  }
}

void ProcessClient::Read() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     alive_.Guard([this](const boost::system::error_code& error) {
                       if (!error) OnReadable();
                     }));
}

void ProcessClient::OnReadable() {
  while (true) {
    Event event;
    const ssize_t n = recv(socket_.native_handle(), &event, sizeof event, MSG_DONTWAIT);
    // A warden that was killed leaves ECONNRESET in front of what it still said.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n < 0 && errno == EAGAIN) return Read();
    if (n != sizeof event) return LoseWarden();
    OnEvent(event);
  }
}

void ProcessClient::OnEvent(const Event& event) {
  switch (event.kind) {
    case EventKind::kStarted:
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
  }
}

void ProcessClient::End(WorkerId id, const ExitInfo& exit, const ResourceUse& use) {
  workers_.erase(id);
  handlers_.ended(id, exit, use);
}

void ProcessClient::LoseWarden() {
  lost_ = true;
  ended_with_warden_ = std::exchange(workers_, {});
  boost::system::error_code ignored;
  socket_.close(ignored);
  outbox_.clear();
  // Its socket closed because it ends: this takes no time.
  int status = 0;
  waitpid(warden_pid_, &status, 0);
  handlers_.warden_lost(absl::UnavailableError(
      absl::StrCat("the warden (pid ", warden_pid_, "), which starts the workers, was ended by somebody (",
                   ToString(ExitInfoFromWaitStatus(status)), "); its workers end with it")));
  KillWithoutWarden(std::chrono::steady_clock::now() + kWardenEndLimit);
}

void ProcessClient::KillWithoutWarden(TimePoint deadline) {
  const pid_t self = getpid();
  StopAndKillDescendants(foreign_children_);
  std::vector<ProcessEntry> left = Descendants(foreign_children_);
  std::erase_if(left, [self](const ProcessEntry& p) {
    if (p.state == 'Z' && p.parent == self) waitpid(p.pid, nullptr, WNOHANG);
    return p.state == 'Z' && p.parent == self;
  });
  if (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    look_timer_.expires_after(kLookInterval);
    look_timer_.async_wait(alive_.Guard([this, deadline](const boost::system::error_code& error) {
      if (!error) KillWithoutWarden(deadline);
    }));
    return;
  }
  std::vector<LeftOver> left_over;
  for (const ProcessEntry& p : left) {
    left_over.push_back(
        {.pid = p.pid, .state = p.state, .name = p.comm, .kernel_wait = KernelWait(p.thread)});
  }
  // Handlers may spawn and kill again, which fails and answers by itself.
  for (const auto& [id, worker] : std::exchange(ended_with_warden_, {})) {
    handlers_.ended(id, Signaled{.signo = SIGKILL, .core_dumped = false}, {});
  }
  for (const auto& [id, kill] : std::exchange(kills_, {})) kill.done(left_over);
}

}  // namespace ddprun
