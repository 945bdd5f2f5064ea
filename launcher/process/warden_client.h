// The agent's interface to the warden. Starts, signals and kills workers, and reports how they ended.
#pragma once

#include <sched.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/alive.h"
#include "base/exit_info.h"
#include "base/time.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/warden.h"
#include "launcher/process/warden_protocol.h"
#include "os/boot_clock.h"
#include "os/descriptor.h"

namespace ddprun {

struct SpawnCommand {
  std::vector<std::string> argv;
  std::string file = {};  // path of the program; argv[0] if empty; PATH is not searched
  std::vector<std::pair<std::string, std::string>> env = {};  // all variables; none are inherited
  std::string cwd = {};           // working directory; the agent's initial directory if empty
  std::vector<int> cpus = {};     // processors that the worker may use; the agent's if empty
  std::vector<int> ignored = {};  // signals, below 64, that the worker ignores unless it handles them
  // Descriptors of the agent, borrowed until Spawn returns. The worker inherits no other descriptors.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
};

// Resources used by a worker and by the children that it waited for.
struct ResourceUse {
  Duration user{0};
  Duration system{0};
  int64_t max_rss_bytes = 0;
};

// A process that SIGKILL did not end in time, usually because it is in uninterruptible sleep (state D).
struct LeftOver {
  pid_t pid = 0;            // 0 if unknown, because /proc is not usable
  char state = '?';         // state of the thread that does not end, as in /proc/PID/stat; '?' if unknown
  std::string name;         // at most 15 bytes; empty if unknown
  std::string kernel_wait;  // the kernel function in which that thread waits; empty if unknown
};
// Returns, for example, "process 12 (cat) is still alive, in state D, waiting in request_wait_answer".
std::string ToString(const LeftOver& left_over);

// Order:   handlers run on the io_context, never inside a call of a method. For each Spawn, `started` is
//          called at most once, and then `ended` exactly once. For each KillAll, `done` is called once, after
//          the `ended` calls for all workers that this KillAll has killed. No handler is called after the
//          destructor has begun.
// Errors:  the warden is lost if it exits, if it does not answer for 5 s while there are workers or pending
//          requests, or if it exceeds the limit of a KillAll by 5 s. In the last two cases this process kills
//          the warden. When the warden is lost, `warden_lost` is called first. The workers die with the
//          warden, and this process kills all other processes that the workers have started. Then `ended` is
//          called for each worker (with SIGKILL, or with NeverStarted if the worker had not started), and
//          `done` for each pending KillAll. A later Spawn ends as NeverStarted{kUnavailable}.
// Threads: all methods must be called from the thread that runs the io_context.
// Owns:    the warden and all processes that it started. The destructor kills them and blocks until none is
//          left, for at most 12 s if some processes do not die. A handler must not destroy the object.
class WardenClient {
 public:
  using WorkerId = uint64_t;  // chosen by the caller; never reused
  struct Handlers {
    std::function<void(WorkerId, pid_t)> started;  // exec has succeeded
    std::function<void(WorkerId, const ExitInfo&, const ResourceUse&)> ended;
    std::function<void(const absl::Status&)> warden_lost;
    std::function<void()> fenced = {};  // the fence's deadline has passed; all workers are being killed
    // Exec has been pending for 10 s, usually because the program's file system does not respond. Called at
    // most once per Spawn, before `started`. LeftOver describes the current state of the process.
    std::function<void(WorkerId, const LeftOver&)> slow_start = {};
  };
  using KillAllHandler = std::function<void(const std::vector<LeftOver>&)>;

  WardenClient(boost::asio::io_context& io, WardenHandle warden, Handlers handlers);
  WardenClient(const WardenClient&) = delete;
  WardenClient& operator=(const WardenClient&) = delete;
  ~WardenClient();

  void Spawn(WorkerId id, const SpawnCommand& command);

  // Signals the worker's process group; no-op if the worker has ended.
  void Signal(WorkerId id, int signo);
  // Signals the process groups of all workers that have not ended.
  void SignalAll(int signo);

  // Sends SIGKILL to all workers and to all processes that workers have started in this or an earlier round,
  // in any session or process group, except the workers in `spare` and the processes below them. A process
  // that a spared worker has detached by forking twice is not below that worker any more, and is killed.
  // Calls `done` when no such process is left, or, after `limit`, with the processes that are left. If an
  // earlier KillAll has already reported a process, this KillAll reports it again but does not wait for it.
  // Until `done` is called, every Spawn ends as NeverStarted{kCancelled}.
  //   A spared worker may end meanwhile; what it leaves behind is killed by this or a later KillAll. A worker
  //   that another KillAll in progress does not spare, or that /proc does not show, is killed. The fence, the
  //   end of this process and the loss of the warden kill spared workers, too.
  void KillAll(Duration limit, KillAllHandler done, const std::vector<WorkerId>& spare = {});

  // A dead man's switch: if neither Fence nor Unfence is called before `deadline`, the warden kills all
  // processes like KillAll, even if this process is stopped. If the machine is suspended at the deadline,
  // the warden kills them on resume. `fenced` is called before the `ended` calls for the killed workers. From
  // the deadline until the next Fence or Unfence, a Spawn ends as NeverStarted{kCancelled}. A `deadline` in
  // the past takes effect immediately. Fence is cheap enough to be called for every heartbeat.
  void Fence(BootTime deadline);
  // Disarms the fence.
  void Unfence();

  // When this process has ended, for any reason, the warden removes the file that `fd` (opened with O_PATH)
  // refers to. `fd` is borrowed until the call returns.
  void RemoveAtEnd(int fd);

  // Specifies when the warden writes the last words (see warden_protocol.h).
  //   kAnyEnd:    whenever this process has ended.
  //   kDeathOnly: only if this process has ended without destroying this object, for example by SIGKILL.
  enum class SayAt { kAnyEnd, kDeathOnly };
  // When this process has ended and no process of its workers is left, the warden writes `words` to the
  // connected stream socket `fd` and shuts the socket down. This call replaces the words of an earlier call
  // and closes their socket. `fd` is borrowed until the call returns. The peer does not read end of file as
  // long as this process keeps `fd` open.
  //   Errors: kResourceExhausted: no descriptors are left; kUnavailable: the warden is not running. After an
  //           error, no last words are set: the words of an earlier call are also discarded.
  absl::Status LastWords(int fd, const std::string& words, SayAt when = SayAt::kDeathOnly);
  // Discards the last words and closes their socket.
  void DropLastWords();

  // Makes the warden kill all remaining processes and exit, without waiting for the exit. The destructor
  // waits for it. An early call saves time if the caller has other work to do before it destroys this object.
  // After this call, no other method may be called, and no handler runs.
  //   REQUIRES: no worker is running, and `done` has been called for every KillAll.
  void EndWarden();

  pid_t warden_pid() const { return warden_pid_; }
  // Checks the warden now, as the timer does every second, and stops the timer.
  void CheckWardenForTest();
  int UnansweredPingsForTest() const { return unanswered_; }

 private:
  struct Message {
    warden_protocol::Request request;
    std::vector<UniqueFd> fds = {};
  };
  struct Worker {
    std::string program;
    std::string cwd;
    bool started = false;
  };
  struct PendingKill {
    KillAllHandler done;
    std::vector<LeftOver> left_over = {};
    int64_t pings_left = 0;  // ping intervals until the answer is overdue
  };

  // Calls `f` later on the io_context, unless the destructor has begun.
  void Later(std::function<void()> f);

  void Send(Message message);
  void Flush();
  void Read();
  // Returns false if the warden has closed its end.
  bool ReadEvents();
  void OnEvent(const warden_protocol::Event& event);
  void End(WorkerId id, const ExitInfo& exit, const ResourceUse& use = {});
  // Starts periodic checks of the warden. They continue while messages from the warden are expected.
  void Watch();
  // Returns true if the only messages expected from the warden are worker exits, the warden is not stopped,
  // and no ping is due. A ping is due at every fifth call, because only a ping detects a warden that blocks
  // or loops.
  bool WardenIsIdle();
  void PingLater();
  void OnPingTime();
  // Counts one ping interval for each pending KillAll. Returns what the warden has not done in time, as a
  // clause for warden_lost; empty if nothing is overdue.
  std::string Overdue();
  // Reaps the warden and returns its wait status; nullopt if the warden has not ended within `limit`.
  // `socket` is the socket to the warden.
  std::optional<int> AwaitWardenEnd(int socket, Duration limit);
  // Called when the warden has closed its end of the socket.
  void LoseWarden();
  // Calls warden_lost and kills the processes that the warden has started. `why` is a clause whose subject is
  // the warden.
  void ContinueWithoutWarden(const std::string& why);
  // Kills all descendants that can be killed, and reaps children. Returns the processes that are left.
  std::vector<ProcessEntry> KillOnce() const;
  // Repeats KillOnce until no process is left or `deadline` has passed, then calls the pending handlers.
  void KillWithoutWarden(TimePoint deadline);

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer room_timer_;  // delays the retry of a message that the kernel could not send
  boost::asio::steady_timer ping_timer_;
  boost::asio::steady_timer look_timer_;  // delays the next KillOnce after the warden is lost
  const pid_t warden_pid_;
  const std::vector<pid_t> foreign_children_;
  const Handlers handlers_;
  Alive alive_;

  UniqueFd line_;        // duplicate of the last words' socket; valid only for kDeathOnly
  bool ending_ = false;  // EndWarden was called
  bool lost_ = false;
  bool killing_ = false;           // a KillWithoutWarden is in progress
  bool waiting_for_room_ = false;  // the first message in outbox_ cannot be sent now
  bool watching_ = false;          // ping_timer_ is running
  int checks_to_ping_ = 0;         // calls to WardenIsIdle until a ping is due
  int unanswered_ = 0;             // pings sent since the warden's last message
  std::deque<Message> outbox_;
  std::map<WorkerId, Worker> workers_;            // workers that were spawned and have not ended
  std::map<WorkerId, Worker> ended_with_warden_;  // the lost warden's workers, before `ended` is called
  std::map<uint64_t, PendingKill> kills_;
  uint64_t next_kill_ = 1;
};

}  // namespace ddprun
