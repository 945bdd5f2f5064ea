#include "launcher/process/warden_loop.h"

#include <poll.h>
#include <sys/epoll.h>
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
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/last_words.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/warden_protocol.h"
#include "launcher/process/worker_start.h"
#include "os/boot_clock.h"
#include "os/files.h"

namespace ddprun {
namespace {

using warden_protocol::Event;
using warden_protocol::EventKind;
using warden_protocol::Request;
using warden_protocol::RequestKind;
using warden_protocol::StartStage;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSpawnFds = 4;
// Time limit for a kill that the agent has not requested. It is long enough for a process that ends slowly
// after SIGKILL.
constexpr milliseconds kLastLimit{10'000};
// Id of a kill that the agent has not requested. Such a kill is not answered.
constexpr uint64_t kOwnKill = 0;
// During a kill, a search for remaining processes follows as soon as all processes that the last one found,
// or all workers to be killed, have ended. Until then, the interval between searches doubles from kFirstLook
// to kLongestLook. The first interval gives the workers time to end after KillAll has sent SIGKILL.
constexpr milliseconds kFirstLook{10};
constexpr milliseconds kLongestLook{200};
constexpr Clock::time_point kNow{};  // has passed
// An exec that takes longer than this is reported by one kSlowStart.
constexpr milliseconds kSlowStart{10'000};

// The loop sleeps in poll() until the agent sends a request or dies, a child ends, an exec succeeds, fails or
// is slow, the fence's deadline passes, or, during a kill, the next search or the time limit is due.
class Warden {
 public:
  explicit Warden(WardenResources resources)
      : socket_(std::move(resources.socket)),
        sigchld_(std::move(resources.sigchld)),
        fence_timer_(std::move(resources.fence_timer)),
        ends_(std::move(resources.ends)),
        worker_files_(resources.worker_files) {}

  [[noreturn]] void Run() {
    while (true) {
      Wait();
      SettleStarts(Clock::now());
      Reap();
      CheckFence();
      if (!agent_gone_) ReadRequests();
      // Handle the agent's death after its last requests, because they may change the last words.
      if (agent_died_ && !agent_gone_) AgentGone();
      ContinueKilling(Clock::now());
      Flush();
      if (agent_gone_ && kills_.empty()) End();
    }
  }

 private:
  struct Worker {
    uint64_t id;
    pid_t pid;
    UniqueFd end = {};               // pidfd, watched by ends_; invalid if the kernel has no pidfds
    UniqueFd exec_result = {};       // invalid after exec has succeeded or failed
    Clock::time_point slow_at = {};  // when a pending exec is reported as slow; max() after the report
    bool failed = false;             // exec failed; kNeverStarted was sent, so kExited must not be sent
  };
  struct Kill {
    uint64_t id;
    Clock::time_point deadline;
    std::set<uint64_t> spare = {};  // ids of the workers that are not killed, nor what is below them
  };

  [[noreturn]] void End() {
    if (no_children_) last_words_.Write();
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
    Clock::time_point until = kills_.empty() ? Clock::time_point::max() : next_look_;
    for (const Kill& k : kills_) until = std::min(until, k.deadline);
    for (const Worker& w : workers_) {
      if (!w.exec_result) continue;
      fds.push_back({.fd = w.exec_result.get(), .events = POLLIN, .revents = 0});
      until = std::min(until, w.slow_at);
    }
    int64_t timeout_ms = -1;
    if (until != Clock::time_point::max()) {
      const int64_t left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      timeout_ms = std::clamp<int64_t>(left, 0, INT32_MAX);
    }
    poll(fds.data(), fds.size(), static_cast<int>(timeout_ms));
    signalfd_siginfo info;
    while (read(sigchld_.get(), &info, sizeof info) > 0) {
      if (info.ssi_signo == kAgentDied && info.ssi_pid == agent_pid_) agent_died_ = true;
    }
  }

  void SettleStarts(Clock::time_point now) {
    for (Worker& w : workers_) {
      Settle(w);
      if (!w.exec_result || now < w.slow_at) continue;
      w.slow_at = Clock::time_point::max();
      const ProcessEntry unseen = {.pid = w.pid, .thread = w.pid};
      SendAbout(EventKind::kSlowStart, w.id, ReadProcess(w.pid).value_or(unseen));
    }
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

  // Reaps ended processes: first the workers, then inherited orphans. Reaps the workers in the order in
  // which they ended, because the first failure may have caused the others.
  void Reap() {
    epoll_event ended[64];
    int n;
    // EPOLLET reports each end only once. Otherwise the loop would spin while wait4() cannot reap an ended
    // process, for example under a debugger.
    while ((n = epoll_wait(ends_.get(), ended, std::size(ended), 0)) > 0) {
      for (int i = 0; i < n; ++i) {
        const auto it = std::find_if(workers_.begin(), workers_.end(),
                                     [&](const Worker& w) { return w.id == ended[i].data.u64; });
        if (it != workers_.end()) ReapOne(it->pid);
      }
    }
    pid_t pid;
    while ((pid = ReapOne(-1)) > 0) {
    }
    no_children_ = pid < 0 && errno == ECHILD;
  }

  // Calls wait4(which, WNOHANG) and returns its result. If wait4() reaps a worker, also reports the exit.
  pid_t ReapOne(pid_t which) {
    int status;
    rusage usage;
    const pid_t pid = wait4(which, &status, WNOHANG, &usage);
    if (pid > 0 && remaining_.erase(pid) > 0 && remaining_.empty()) next_look_ = kNow;
    const auto it =
        std::find_if(workers_.begin(), workers_.end(), [pid](const Worker& w) { return w.pid == pid; });
    if (pid <= 0 || it == workers_.end()) return pid;
    Settle(*it);  // kStarted must precede kExited
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
      case RequestKind::kSpare:
        to_spare_.insert(request.id);
        return;
      case RequestKind::kKillAll:
        return KillAll(request.id, milliseconds(request.limit_ms), std::exchange(to_spare_, {}));
      case RequestKind::kFence:
        return Fence(BootTime(BootClock::duration(request.deadline_ns)));
      case RequestKind::kUnfence:
        return Fence(std::nullopt);
      case RequestKind::kRemoveAtEnd:
        std::move(fds.begin(), fds.end(), std::back_inserter(to_remove_));
        return;
      case RequestKind::kLastWords:
        last_words_.Drop();
        if (fds.size() == 2) last_words_.Set(std::move(fds[0]), fds[1], request.bytes);
        return;
      case RequestKind::kPing:
        return Send({.kind = EventKind::kPong});
    }
  }

  void Fence(std::optional<BootTime> deadline) {
    fence_ = deadline;
    fenced_ = false;
    SetFenceTimer();
    CheckFence();
  }

  // Checks the clock instead of the timer, because after a suspend the warden may handle requests before the
  // timer fires.
  void CheckFence() {
    if (!fence_ || BootClock::now() < *fence_) return;
    fence_.reset();
    fenced_ = true;
    SetFenceTimer();
    Send({.kind = EventKind::kFenced});
    KillAll(kOwnKill, kLastLimit);
  }

  void SetFenceTimer() {
    itimerspec at = {};  // a zero time disarms the timer
    if (fence_) {
      const int64_t ns = std::max<int64_t>(fence_->time_since_epoch().count(), 1);
      at.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    }
    timerfd_settime(fence_timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
  }

  void Spawn(const Request& request, const std::vector<UniqueFd>& fds) {
    CheckFence();
    // During a kill, do not start a worker, because it would also be killed. After the fence's deadline, do
    // not start a worker, because the request may be stale: the agent may have sent the request before the
    // agent was stopped.
    if (fenced_ || !kills_.empty()) return SendNeverStarted(request.id, StartStage::kFork, ECANCELED);
    // The kernel discards received descriptors that exceed the warden's limit on open files.
    if (fds.size() != kSpawnFds) return SendNeverStarted(request.id, StartStage::kReceive, EMFILE);
    SpawnStrings strings;
    if (!strings.Map(fds[3].get(), request)) return SendNeverStarted(request.id, StartStage::kReceive, errno);
    StartingWorker started = StartWorker({.cwd = strings.cwd(),
                                          .file = strings.file(),
                                          .argv = strings.argv(),
                                          .env = strings.env(),
                                          .cpus = request.has_cpus != 0 ? &request.cpus : nullptr,
                                          .files = &worker_files_,
                                          .ignored = request.ignored,
                                          .stdio = {fds[0].get(), fds[1].get(), fds[2].get()}});
    if (started.pid < 0) return SendNeverStarted(request.id, StartStage::kFork, started.error);
    UniqueFd end(static_cast<int>(syscall(SYS_pidfd_open, started.pid, 0)));
    epoll_event watch = {.events = EPOLLIN | EPOLLET, .data = {.u64 = request.id}};
    // Without a pidfd, the worker is reaped after SIGCHLD, possibly after workers that ended later.
    if (end) epoll_ctl(ends_.get(), EPOLL_CTL_ADD, end.get(), &watch);
    workers_.push_back({.id = request.id,
                        .pid = started.pid,
                        .end = std::move(end),
                        .exec_result = std::move(started.exec_result),
                        .slow_at = Clock::now() + kSlowStart});
    no_children_ = false;
  }

  // Signals the worker's process group. `w` has not been reaped, so its pid cannot have been reused.
  static void SignalGroup(const Worker& w, int signo) {
    // A worker that was just forked may not be the leader of its group yet.
    if (kill(-w.pid, signo) != 0 && errno == ESRCH) kill(w.pid, signo);
  }

  // Begins a kill: sends SIGKILL to the workers' process groups, which is cheap and usually enough.
  // ContinueKilling finds and kills all other descendants.
  void KillAll(uint64_t id, milliseconds limit, std::set<uint64_t> spare = {}) {
    // A search that does not see a spared worker would not see what is below it either, and would not know
    // when it has found everything else.
    std::erase_if(spare, [this](uint64_t worker) {
      const Worker* const w = Find(worker);
      return w == nullptr || !ReadProcess(w->pid);
    });
    kills_.push_back({.id = id, .deadline = Clock::now() + limit, .spare = std::move(spare)});
    const std::set<uint64_t> spared = SparedByAll();
    remaining_.clear();
    for (const Worker& w : workers_) {
      if (spared.count(w.id) > 0) continue;
      SignalGroup(w, SIGKILL);
      if (given_up_.count(w.pid) == 0) remaining_.insert(w.pid);
    }
    look_interval_ = kFirstLook;
    next_look_ = remaining_.empty() ? kNow : Clock::now() + look_interval_;
  }

  const Worker* Find(uint64_t id) const {
    const auto it =
        std::find_if(workers_.begin(), workers_.end(), [id](const Worker& w) { return w.id == id; });
    return it == workers_.end() ? nullptr : &*it;
  }

  // Returns the workers that every kill in progress spares.
  std::set<uint64_t> SparedByAll() const {
    std::set<uint64_t> spared = kills_.front().spare;
    for (const Kill& k : kills_) {
      std::erase_if(spared, [&k](uint64_t id) { return k.spare.count(id) == 0; });
    }
    return spared;
  }

  // Returns the pids of those of these workers that have not been reaped.
  std::vector<pid_t> PidsOf(const std::set<uint64_t>& ids) const {
    std::vector<pid_t> pids;
    for (const Worker& w : workers_) {
      if (ids.count(w.id) > 0) pids.push_back(w.pid);
    }
    return pids;
  }

  void ContinueKilling(Clock::time_point now) {
    if (kills_.empty()) return;
    bool looked = false;
    const std::set<uint64_t> spared = SparedByAll();
    std::vector<ProcessEntry> alive;
    // Without children there are no descendants.
    if (!no_children_ && now >= next_look_) {
      looked = true;
      alive = StopAndKillDescendants(PidsOf(spared));
      look_interval_ = std::min(2 * look_interval_, kLongestLook);
      next_look_ = now + look_interval_;
      remaining_.clear();
      for (const ProcessEntry& p : alive) {
        if (given_up_.count(p.pid) == 0) remaining_.insert(p.pid);
      }
      Reap();
    }
    std::erase_if(kills_, [&](const Kill& k) {
      const bool over = no_children_ || now >= k.deadline;
      if (!over && !looked) return false;
      const std::vector<ProcessEntry> left = over || k.spare != spared ? AliveExcept(k.spare) : alive;
      if (!over && !IsOver(k, left)) return false;
      Answer(k.id, left);
      return true;
    });
  }

  std::vector<ProcessEntry> AliveExcept(const std::set<uint64_t>& spare) const {
    std::vector<ProcessEntry> alive = no_children_ ? std::vector<ProcessEntry>() : Descendants(PidsOf(spare));
    std::erase_if(alive, [](const ProcessEntry& p) { return p.dead(); });
    return alive;
  }

  // Returns true if this kill has nothing to wait for although this process has children.
  //   alive: the live processes that the last search found, except those that `k` spares. Ended ones have
  //          been reaped since, if they are children of this process and can be reaped.
  bool IsOver(const Kill& k, const std::vector<ProcessEntry>& alive) const {
    const auto given_up = [this](pid_t pid) { return given_up_.count(pid) > 0; };
    if (!std::all_of(alive.begin(), alive.end(), [&](const ProcessEntry& p) { return given_up(p.pid); })) {
      return false;
    }
    // The end of every worker that is not spared must be reported before the answer.
    return !alive.empty() ||
           (!k.spare.empty() && std::all_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
             return k.spare.count(w.id) > 0 || given_up(w.pid);
           }));
  }

  // Answers the kill `kill_id` with the processes `left`. Later kills do not wait for these processes.
  void Answer(uint64_t kill_id, const std::vector<ProcessEntry>& left) {
    given_up_.clear();
    for (const ProcessEntry& p : left) {
      given_up_.insert(p.pid);
      if (kill_id != kOwnKill) SendAbout(EventKind::kLeftOver, kill_id, p);
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

  void SendAbout(EventKind kind, uint64_t id, const ProcessEntry& p) {
    Event event = {.kind = kind, .pid = p.pid, .id = id, .state = p.state};
    std::snprintf(event.comm, sizeof event.comm, "%s", p.comm.c_str());
    std::snprintf(event.wait, sizeof event.wait, "%s", KernelWait(p.thread).c_str());
    Send(event);
  }

  void Send(const Event& event) {
    if (agent_gone_) return;
    outbox_.push_back(event);
    Flush();
  }

  // Sends the events in the outbox. Events that do not fit into the socket's buffer, for example while the
  // agent is stopped, stay in the outbox.
  void Flush() {
    while (!outbox_.empty()) {
      if (send(socket_.get(), &outbox_.front(), sizeof(Event), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
      outbox_.pop_front();
    }
  }

  const UniqueFd socket_;
  const UniqueFd sigchld_;
  const UniqueFd fence_timer_;  // CLOCK_BOOTTIME
  const UniqueFd ends_;         // epoll of the workers' pidfds; preserves the order in which they ended
  const rlimit worker_files_;
  std::vector<Worker> workers_;      // not yet reaped
  std::vector<UniqueFd> to_remove_;  // files from kRemoveAtEnd
  LastWords last_words_;
  bool no_children_ = true;
  const uint32_t agent_pid_ = static_cast<uint32_t>(getppid());
  bool agent_died_ = false;  // kAgentDied has arrived; the agent's socket may still be open
  bool agent_gone_ = false;  // the agent has ended or closed its socket; the warden reads no more requests
  std::deque<Event> outbox_;
  std::optional<BootTime> fence_;  // deadline; nullopt if disarmed or passed
  bool fenced_ = false;            // the deadline has passed, and no kFence or kUnfence has arrived since
  // State of kills:
  std::vector<Kill> kills_;  // kills in progress
  Clock::time_point next_look_;
  milliseconds look_interval_{0};
  // Processes that were alive at the last search or, before the first one, at the last KillAll, and have not
  // been reaped. The next search is due when none is left.
  std::set<pid_t> remaining_;
  std::set<uint64_t> to_spare_;  // by the next kKillAll
  std::set<pid_t> given_up_;     // processes that the last answer reported; kills do not wait for them
};

}  // namespace

void RunWarden(WardenResources resources) { Warden(std::move(resources)).Run(); }

}  // namespace ddprun
