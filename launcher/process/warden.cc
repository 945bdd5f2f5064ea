#include "launcher/process/warden.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <set>

#include "base/boot_clock.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/remove_file.h"
#include "launcher/process/warden_protocol.h"
#include "launcher/process/worker_start.h"

namespace ddprun {
namespace {

using warden_protocol::Event;
using warden_protocol::EventKind;
using warden_protocol::Request;
using warden_protocol::RequestKind;
using warden_protocol::StartStage;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kName[] = "ddp-warden";
constexpr int kSpawnFds = 4;
// Of a kill of our own, for whose answer nobody waits: long enough for a process that ends slowly.
constexpr milliseconds kLastLimit{10'000};
// The id of a kill that nobody has asked for and nobody is answered.
constexpr uint64_t kOwnKill = 0;
// Between two looks at who is left, doubling. The first leaves those time who die by the signal just sent.
constexpr milliseconds kFirstLook{10};
constexpr milliseconds kLongestLook{200};

// The memory file of a kSpawn, cut into the arrays that exec wants.
class SpawnStrings {
 public:
  // False when the file cannot be mapped.
  bool Map(int fd, const Request& request) {
    size_ = request.bytes;
    void* map = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return false;
    map_ = static_cast<char*>(map);
    char* at = map_;
    const auto next = [&at] { return std::exchange(at, at + std::strlen(at) + 1); };
    cwd_ = next();
    file_ = next();
    for (uint32_t i = 0; i < request.num_args; ++i) argv_.push_back(next());
    for (uint32_t i = 0; i < request.num_env; ++i) env_.push_back(next());
    argv_.push_back(nullptr);
    env_.push_back(nullptr);
    return true;
  }
  SpawnStrings() = default;
  SpawnStrings(const SpawnStrings&) = delete;
  SpawnStrings& operator=(const SpawnStrings&) = delete;
  ~SpawnStrings() {
    if (map_ != nullptr) munmap(map_, size_);
  }

  const char* cwd() const { return cwd_; }
  const char* file() const { return file_; }
  char* const* argv() const { return argv_.data(); }
  char* const* env() const { return env_.data(); }

 private:
  char* map_ = nullptr;
  size_t size_ = 0;
  const char* cwd_ = nullptr;
  const char* file_ = nullptr;
  std::vector<char*> argv_;
  std::vector<char*> env_;
};

// The loop. Sleeps in poll() until the agent says something, a child ends, an exec succeeds or fails, the
// fence's deadline comes, or, only while killing, the time for the next look has come.
class Warden {
 public:
  Warden(UniqueFd socket, UniqueFd sigchld, UniqueFd fence_timer)
      : socket_(std::move(socket)),
        sigchld_(std::move(sigchld)),
        fence_timer_(std::move(fence_timer)),
        ends_(epoll_create1(EPOLL_CLOEXEC)) {}

  [[noreturn]] void Run() {
    while (true) {
      Wait();
      SettleStarts();
      Reap();
      HeedFence();
      if (!agent_gone_) ReadRequests();
      GoOnKilling(Clock::now());
      Flush();
      if (agent_gone_ && kills_.empty()) End();
    }
  }

 private:
  struct Worker {
    uint64_t id;
    pid_t pid;
    UniqueFd end = {};          // pidfd, in ends_
    UniqueFd exec_result = {};  // none once it runs
    bool failed = false;        // exec failed: its end is no event of its own
  };
  struct Kill {
    uint64_t id;
    Clock::time_point deadline;
  };

  [[noreturn]] void End() {
    for (const UniqueFd& file : to_remove_) RemoveFileOf(file.get());
    _exit(0);
  }

  void Wait() {
    std::vector<pollfd> fds = {{.fd = sigchld_.get(), .events = POLLIN, .revents = 0},
                               {.fd = fence_timer_.get(), .events = POLLIN, .revents = 0}};
    if (!agent_gone_) {
      const short events = outbox_.empty() ? POLLIN : POLLIN | POLLOUT;
      fds.push_back({.fd = socket_.get(), .events = events, .revents = 0});
    }
    for (const Worker& w : workers_) {
      if (w.exec_result) fds.push_back({.fd = w.exec_result.get(), .events = POLLIN, .revents = 0});
    }
    int timeout_ms = -1;
    if (!kills_.empty()) {
      Clock::time_point until = next_look_;
      for (const Kill& k : kills_) until = std::min(until, k.deadline);
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      timeout_ms = static_cast<int>(std::max<int64_t>(left, 0));
    }
    poll(fds.data(), fds.size(), timeout_ms);
    signalfd_siginfo ignored[8];
    while (read(sigchld_.get(), ignored, sizeof ignored) > 0) {
    }
  }

  void SettleStarts() {
    for (Worker& w : workers_) Settle(w);
  }

  void Settle(Worker& w) {
    if (!w.exec_result) return;
    StartFailure failure;
    switch (ReadStartResult(w.exec_result.get(), failure)) {
      case StartState::kPending:
        return;
      case StartState::kRunning:
        Send({.kind = EventKind::kStarted, .pid = w.pid, .id = w.id});
        break;
      case StartState::kFailed:
        SendNeverStarted(w.id, failure.stage, failure.error);
        w.failed = true;
        break;
    }
    w.exec_result.Reset();
  }

  // Waits for whoever has ended: first the workers in the order in which they did, since the first is the
  // cause and those that it took along are not; then what they left behind and we inherited.
  void Reap() {
    epoll_event ended[64];
    int n;
    while ((n = epoll_wait(ends_.get(), ended, std::size(ended), 0)) > 0) {
      for (int i = 0; i < n; ++i) ReapOne(static_cast<pid_t>(ended[i].data.u64));
    }
    pid_t pid;
    while ((pid = ReapOne(-1)) > 0) {
    }
    no_children_ = pid < 0 && errno == ECHILD;
  }

  // As wait4(which, WNOHANG).
  pid_t ReapOne(pid_t which) {
    int status;
    rusage usage;
    const pid_t pid = wait4(which, &status, WNOHANG, &usage);
    const auto it =
        std::find_if(workers_.begin(), workers_.end(), [pid](const Worker& w) { return w.pid == pid; });
    if (pid <= 0 || it == workers_.end()) return pid;
    Settle(*it);  // its end is known only after its start
    if (!it->failed) {
      const auto micros = [](const timeval& t) { return t.tv_sec * int64_t{1'000'000} + t.tv_usec; };
      Send({.kind = EventKind::kExited,
            .pid = pid,
            .id = it->id,
            .wait_status = status,
            .user_us = micros(usage.ru_utime),
            .system_us = micros(usage.ru_stime),
            .max_rss_kib = usage.ru_maxrss});
    }
    workers_.erase(it);
    return pid;
  }

  void ReadRequests() {
    while (true) {
      Request request;
      iovec data = {.iov_base = &request, .iov_len = sizeof request};
      alignas(cmsghdr) char control[CMSG_SPACE(kSpawnFds * sizeof(int))];
      msghdr message = {};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t n = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
      if (n != sizeof request) return AgentGone();
      std::vector<UniqueFd> fds;
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; ++i) {
          int fd;
          std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
          fds.emplace_back(fd);
        }
      }
      Handle(request, fds);
    }
  }

  void Handle(const Request& request, std::vector<UniqueFd>& fds) {
    switch (request.kind) {
      case RequestKind::kSpawn:
        return Spawn(request, fds);
      case RequestKind::kSignal:
        for (const Worker& w : workers_) {
          if (w.id == request.id) SignalGroup(w, request.signo);
        }
        return;
      case RequestKind::kSignalAll:
        for (const Worker& w : workers_) SignalGroup(w, request.signo);
        return;
      case RequestKind::kKillAll:
        return KillAll(request.id, milliseconds(request.limit_ms));
      case RequestKind::kFence:
        return Fence(BootTime(BootClock::duration(request.deadline_ns)));
      case RequestKind::kUnfence:
        return Fence(std::nullopt);
      case RequestKind::kRemoveAtEnd:
        std::move(fds.begin(), fds.end(), std::back_inserter(to_remove_));
        return;
    }
  }

  void Fence(std::optional<BootTime> deadline) {
    fence_ = deadline;
    fenced_ = false;
    SetFenceTimer();
    HeedFence();
  }

  // Judged by the clock, not by the timer: after a suspension requests may come up before it.
  void HeedFence() {
    if (!fence_ || BootClock::now() < *fence_) return;
    fence_.reset();
    fenced_ = true;
    SetFenceTimer();
    Send({.kind = EventKind::kFenced});
    KillAll(kOwnKill, kLastLimit);
  }

  void SetFenceTimer() {
    itimerspec at = {};  // zero: disarmed
    if (fence_) {
      const int64_t ns = std::max<int64_t>(fence_->time_since_epoch().count(), 1);
      at.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    }
    timerfd_settime(fence_timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
  }

  void Spawn(const Request& request, const std::vector<UniqueFd>& fds) {
    HeedFence();
    // While everything is being killed a new worker would be too. After a fence has closed, the order may be
    // one that an agent had given before it was stopped for long.
    if (fenced_ || !kills_.empty()) return SendNeverStarted(request.id, StartStage::kFork, ECANCELED);
    // The kernel drops descriptors that do not fit our limit.
    if (fds.size() != kSpawnFds) return SendNeverStarted(request.id, StartStage::kReceive, EMFILE);
    SpawnStrings strings;
    if (!strings.Map(fds[3].get(), request)) return SendNeverStarted(request.id, StartStage::kReceive, errno);
    StartingWorker started = StartWorker({.cwd = strings.cwd(),
                                          .file = strings.file(),
                                          .argv = strings.argv(),
                                          .env = strings.env(),
                                          .cpus = request.has_cpus != 0 ? &request.cpus : nullptr,
                                          .stdio = {fds[0].get(), fds[1].get(), fds[2].get()}});
    if (started.pid < 0) return SendNeverStarted(request.id, StartStage::kFork, started.error);
    UniqueFd end(static_cast<int>(syscall(SYS_pidfd_open, started.pid, 0)));
    epoll_event watch = {.events = EPOLLIN, .data = {.u64 = static_cast<uint64_t>(started.pid)}};
    // Without descriptors to be had, its end is seen all the same, by SIGCHLD, only perhaps out of order.
    if (end) epoll_ctl(ends_.get(), EPOLL_CTL_ADD, end.get(), &watch);
    workers_.push_back({.id = request.id,
                        .pid = started.pid,
                        .end = std::move(end),
                        .exec_result = std::move(started.exec_result)});
    no_children_ = false;
  }

  // Only for workers not yet waited for: until then nobody else can get their number.
  static void SignalGroup(const Worker& w, int signo) {
    // A worker forked just now may not lead its group yet.
    if (kill(-w.pid, signo) != 0 && errno == ESRCH) kill(w.pid, signo);
  }

  // First the workers' groups, which costs nothing and is enough for most; then GoOnKilling looks for the
  // rest.
  void KillAll(uint64_t id, milliseconds limit) {
    for (const Worker& w : workers_) SignalGroup(w, SIGKILL);
    kills_.push_back({.id = id, .deadline = Clock::now() + limit});
    look_interval_ = kFirstLook;
    next_look_ = Clock::now() + look_interval_;
  }

  void GoOnKilling(Clock::time_point now) {
    if (kills_.empty()) return;
    // All that descends from us descends from a child of ours.
    const bool first_look = workers_.empty() && look_interval_ == kFirstLook;
    bool nobody_dies = false;
    if (!no_children_ && (first_look || now >= next_look_)) {
      const std::vector<ProcessEntry> alive = StopAndKillDescendants();
      nobody_dies = !alive.empty() && std::all_of(alive.begin(), alive.end(), [this](const ProcessEntry& p) {
        return given_up_.count(p.pid) > 0;
      });
      Reap();
      look_interval_ = std::min(2 * look_interval_, kLongestLook);
      next_look_ = now + look_interval_;
    }
    std::erase_if(kills_, [&](const Kill& k) {
      if (!no_children_ && !nobody_dies && now < k.deadline) return false;
      Answer(k.id);
      return true;
    });
  }

  // With whoever is left.
  void Answer(uint64_t kill_id) {
    given_up_.clear();
    for (const ProcessEntry& p : no_children_ ? std::vector<ProcessEntry>() : Descendants()) {
      if (p.dead()) continue;
      given_up_.insert(p.pid);
      if (kill_id == kOwnKill) continue;
      Event event = {.kind = EventKind::kLeftOver, .pid = p.pid, .id = kill_id, .state = p.state};
      std::snprintf(event.comm, sizeof event.comm, "%s", p.comm.c_str());
      std::snprintf(event.wait, sizeof event.wait, "%s", KernelWait(p.thread).c_str());
      Send(event);
    }
    if (kill_id != kOwnKill) Send({.kind = EventKind::kAllDead, .id = kill_id});
  }

  void AgentGone() {
    agent_gone_ = true;
    outbox_.clear();
    KillAll(kOwnKill, kLastLimit);
  }

  void SendNeverStarted(uint64_t id, StartStage stage, int error) {
    Send({.kind = EventKind::kNeverStarted, .id = id, .error = error, .stage = stage});
  }

  void Send(const Event& event) {
    if (agent_gone_) return;
    outbox_.push_back(event);
    Flush();
  }

  // A stopped agent reads nothing: what does not fit the socket waits here.
  void Flush() {
    while (!outbox_.empty()) {
      if (send(socket_.get(), &outbox_.front(), sizeof(Event), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
      outbox_.pop_front();
    }
  }

  const UniqueFd socket_;
  const UniqueFd sigchld_;
  const UniqueFd fence_timer_;       // CLOCK_BOOTTIME
  const UniqueFd ends_;              // epoll over the workers' pidfds: it keeps the order in which they ended
  std::vector<Worker> workers_;      // not yet waited for
  std::vector<UniqueFd> to_remove_;  // files of the agent, when it has gone
  bool no_children_ = true;
  bool agent_gone_ = false;
  std::deque<Event> outbox_;
  std::optional<BootTime> fence_;  // then all is killed
  bool fenced_ = false;            // it was, and the agent has not spoken of the fence since
  // While killing:
  std::vector<Kill> kills_;  // to be answered
  Clock::time_point next_look_;
  milliseconds look_interval_{0};
  std::set<pid_t>
      given_up_;  // were left at the last answer: they had their time, nobody waits for them again
};

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  _exit(1);
}

// `ps` and `pkill -f` shall not take us for the agent: our copy of its command line is overwritten.
void Rename() {
  prctl(PR_SET_NAME, kName);
  std::FILE* stat = std::fopen("/proc/self/stat", "re");
  if (stat == nullptr) return;
  char text[2048];
  const size_t n = std::fread(text, 1, sizeof text - 1, stat);
  std::fclose(stat);
  text[n] = '\0';
  // After the name in parentheses comes field 3; 48 and 49 are where the arguments begin and end.
  char* field = std::strrchr(text, ')');
  for (int i = 2; field != nullptr && i < 48; ++i) field = std::strchr(field + 1, ' ');
  if (field == nullptr) return;
  const auto begin = std::strtoull(field, &field, 10);
  const auto end = std::strtoull(field, nullptr, 10);
  if (begin == 0 || end <= begin) return;
  char* const args = reinterpret_cast<char*>(begin);
  std::memset(args, 0, end - begin);
  std::memcpy(args, kName, std::min<size_t>(end - begin - 1, sizeof kName - 1));
}

[[noreturn]] void BecomeWarden(int socket) {
  constexpr int kSocket = 3;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Children that end must not vanish unseen, whatever the caller had set.
  signal(SIGCHLD, SIG_DFL);
  Rename();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) Die("ddprun: /dev/null");
  if (dup2(socket, kSocket) < 0) Die("ddprun: warden");
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  close_range(kSocket + 1, ~0U, 0);
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  UniqueFd sigchld(signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK));
  UniqueFd fence_timer(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!sigchld || !fence_timer) _exit(1);
  Warden(UniqueFd(kSocket), std::move(sigchld), std::move(fence_timer)).Run();
}

}  // namespace

WardenHandle StartWarden() {
  // Whoever started us with closed standard descriptors gets empty ones, or our own would take their place.
  int fd;
  while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < 3) fcntl(fd, F_SETFD, 0);
  if (fd >= 0) close(fd);

  WardenHandle handle = {.foreign_children = ChildrenOfThisProcess()};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    Die("ddprun: socketpair");
  }
  handle.socket.Reset(ends[0]);
  UniqueFd theirs(ends[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  handle.pid = fork();
  if (handle.pid < 0) Die("ddprun: cannot start a process: fork");
  if (handle.pid == 0) {
    handle.socket.Reset();
    BecomeWarden(theirs.get());
  }
  return handle;
}

}  // namespace ddprun
