// The agent's side of the warden: starts, signals and kills workers, and reports how they ended.
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
  std::string file = {};  // path of the program; PATH is not searched; empty: argv[0]
  std::vector<std::pair<std::string, std::string>> env = {};  // complete; nothing is inherited
  std::string cwd = {};                                       // empty: the agent's initial directory
  std::vector<int> cpus = {};  // processors that the worker may use; empty: those of the agent
  // Descriptors of the agent, borrowed until Spawn returns. The worker inherits no others.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
};

// Resources used by a worker and the children it waited for.
struct ResourceUse {
  Duration user{0};
  Duration system{0};
  int64_t max_rss_bytes = 0;
};

// A process that SIGKILL did not end in time, usually because it is in uninterruptible sleep (state D).
struct LeftOver {
  pid_t pid = 0;            // 0: unknown, because the process is not visible in /proc
  char state = '?';         // of the thread that does not end, as in /proc/PID/stat; '?': unknown
  std::string name;         // at most 15 bytes; empty: unknown
  std::string kernel_wait;  // kernel function in which it waits; empty: unknown
};
// For example "process 12 (cat) is still alive, in state D, waiting in ..."
std::string ToString(const LeftOver& left_over);

// Order:   handlers run on the io_context, never inside a call. For each Spawn, `started` is called at most
//          once, and then `ended` exactly once. For each KillAll, `done` is called once, after the `ended`
//          calls for all workers that it killed. No handler is called once the destructor has begun.
// Errors:  the warden is lost if it ends, or if it does not answer for 5 s while there are workers or pending
//          requests; in the latter case this process kills it. `warden_lost` is called first. The workers die
//          with the warden, and this process kills everything that they started. Then `ended` is called for
//          each worker (with SIGKILL, or NeverStarted if it had not started), and `done` for each pending
//          KillAll. A later Spawn ends as NeverStarted{kUnavailable}.
// Threads: all calls are made from the thread that runs the io_context.
// Owns:    the warden and all processes that it started. The destructor kills them and blocks until none is
//          left, for at most 12 s if some do not die. Must not be destroyed in a handler.
class WardenClient {
 public:
  using WorkerId = uint64_t;  // chosen by the caller; never reused
  struct Handlers {
    std::function<void(WorkerId, pid_t)> started;  // exec has succeeded
    std::function<void(WorkerId, const ExitInfo&, const ResourceUse&)> ended;
    std::function<void(const absl::Status&)> warden_lost;
    std::function<void()> fenced = {};  // the fence's deadline has passed: all workers are being killed
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

  // Sends SIGKILL to all workers and to every process that workers have started, even in earlier rounds, in
  // any session or process group. Calls `done` when none is left, or after `limit` with those that are
  // left. Processes reported by an earlier KillAll are reported again but not waited for. A Spawn before
  // `done` is called ends as NeverStarted{kCancelled}.
  void KillAll(Duration limit, KillAllHandler done);

  // A dead man's switch: if neither Fence nor Unfence is called before `deadline`, the warden kills all
  // processes as in KillAll, even if this process is stopped. If the machine is suspended at the deadline,
  // the warden kills them on resume. `fenced` is called before the `ended` calls for the killed workers. From
  // the deadline until the next Fence or Unfence, a Spawn ends as NeverStarted{kCancelled}. A `deadline` in
  // the past takes effect immediately. Cheap enough to be called with every heartbeat.
  void Fence(BootTime deadline);
  void Unfence();

  // Makes the warden remove the file to which `fd` (O_PATH) refers after this process has ended, for any
  // reason. `fd` is borrowed until the call returns.
  void RemoveAtEnd(int fd);

  // When the last words (see warden_protocol.h) are written: at any end of this process, or only if the
  // process ends without destroying this object, for example by SIGKILL.
  enum class SayAt { kAnyEnd, kDeathOnly };
  // When this process has ended and none of the processes that it started is left, the warden writes `words`
  // to the connected stream socket `fd` and shuts the socket down. Replaces the words of an earlier call and
  // closes their socket. `fd` is borrowed until the call returns. The peer sees no end of stream as long as
  // this process keeps `fd` open.
  //   Errors: kResourceExhausted, kUnavailable (no warden). On error, no last words are set, and those of an
  //           earlier call are dropped.
  absl::Status LastWords(int fd, const std::string& words, SayAt when = SayAt::kDeathOnly);
  // Discards the last words and closes their socket.
  void DropLastWords();

  // Makes the warden kill what is left and exit, without waiting for its exit; the destructor waits. Saves
  // time if the caller has other work to do before it destroys this object. After this call, no other method
  // may be called, and no handler runs.
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

  void Later(std::function<void()> f);

  void Send(Message message);
  void Flush();
  void Read();
  // Returns false if the warden has closed its end.
  bool ReadEvents();
  void OnEvent(const warden_protocol::Event& event);
  void End(WorkerId id, const ExitInfo& exit, const ResourceUse& use = {});
  // Checks the warden periodically while messages from it are expected.
  void Watch();
  // True if the only messages expected from the warden are worker exits, it is not stopped, and no ping is
  // due. A ping is due at every fifth call, since a warden that blocks or loops looks healthy from outside.
  bool WardenIsIdle();
  void PingLater();
  void OnPingTime();
  // What the warden has not done in time; empty: nothing is overdue.
  std::string Overdue();
  // Reaps the warden and returns its wait status; nullopt: it has not ended within `limit`.
  std::optional<int> AwaitWardenEnd(int socket, Duration limit);
  void LoseWarden();
  void ContinueWithoutWarden(const std::string& why);
  // Kills what can be killed and reaps children. Returns the processes that are left.
  std::vector<ProcessEntry> KillOnce() const;
  void KillWithoutWarden(TimePoint deadline);

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer room_timer_;  // to resend a message for which the kernel had no memory
  boost::asio::steady_timer ping_timer_;
  boost::asio::steady_timer look_timer_;  // next KillOnce, if the warden is lost
  const pid_t warden_pid_;
  const std::vector<pid_t> foreign_children_;
  const Handlers handlers_;
  Alive alive_;

  UniqueFd line_;        // socket of the last words, if they are kDeathOnly
  bool ending_ = false;  // EndWarden was called
  bool lost_ = false;
  bool killing_ = false;           // killing the processes that the lost warden has left
  bool waiting_for_room_ = false;  // the next message cannot be sent now
  bool watching_ = false;          // ping_timer_ runs
  int checks_to_ping_ = 0;         // calls to WardenIsIdle until a ping is due
  int unanswered_ = 0;             // pings sent since the warden's last message
  std::deque<Message> outbox_;
  std::map<WorkerId, Worker> workers_;            // spawned, not ended
  std::map<WorkerId, Worker> ended_with_warden_;  // workers of the lost warden; `ended` not yet called
  std::map<uint64_t, PendingKill> kills_;
  uint64_t next_kill_ = 1;
};

}  // namespace ddprun
