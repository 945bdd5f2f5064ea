// The agent's side of the warden: starts, signals and kills workers, and tells what became of them.
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
#include "os/unique_fd.h"

namespace ddprun {

struct SpawnCommand {
  std::vector<std::string> argv;
  std::string file = {};  // what is run: a path, never looked for on PATH; empty: argv[0]
  std::vector<std::pair<std::string, std::string>> env = {};  // all of it; nothing is inherited
  std::string cwd = {};                                       // empty: where the agent was started
  std::vector<int> cpus = {};  // processors it may use; empty: those of the agent
  // Borrowed until Spawn returns; any descriptors of the agent. Nothing else stays open in the worker.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
};

// What a worker used, with the children it waited for.
struct ResourceUse {
  Duration user{0};
  Duration system{0};
  int64_t max_rss_bytes = 0;
};

// A process that even SIGKILL did not end in time, as a rule one in uninterruptible sleep (state D).
struct LeftOver {
  pid_t pid = 0;            // 0: not known, since /proc does not show it
  char state = '?';         // of its thread that does not end, as in /proc/PID/stat; '?': not known
  std::string name;         // at most 15 bytes; empty: not known
  std::string kernel_wait;  // function of the kernel in which it waits; may be empty
};
std::string ToString(
    const LeftOver& left_over);  // "process 12 (cat) is still there, in state D, waiting in ..."

// Order:   handlers are called from the io_context, never from inside a call. Each Spawn gets exactly one
//          `ended`, before it at most one `started`; each KillAll gets one answer, after the `ended` of every
//          worker that it killed. None of them is called once the destructor has begun.
// Errors:  when the warden is lost (it was killed, or says nothing for 5 s while there are workers, or
//          something is asked of it: then it is killed from here), `warden_lost` comes first; its workers die
//          with it, what they started is killed from here, then each worker gets `ended` (SIGKILL;
//          NeverStarted if it had not started) and each KillAll its answer. From then on a Spawn ends as
//          NeverStarted{kUnavailable}.
// Threads: all calls from the thread that runs the io_context.
// Owns:    the warden and all that it started: nothing of it is left when the destructor returns, which waits
//          for that (at most 12 s, for processes that do not die). Not to be destroyed from a handler.
class ProcessClient {
 public:
  using WorkerId = uint64_t;  // chosen by the caller, never used twice
  struct Handlers {
    std::function<void(WorkerId, pid_t)> started;  // exec has succeeded
    std::function<void(WorkerId, const ExitInfo&, const ResourceUse&)> ended;
    std::function<void(const absl::Status&)> warden_lost;
    std::function<void()> fenced = {};  // a fence's deadline has come: all workers are being killed
    // Exec has taken 10 s so far; as a rule the file system of the program does not answer. At most once for
    // a Spawn, before its `started`. The process is as it is now.
    std::function<void(WorkerId, const LeftOver&)> slow_start = {};
  };
  using KillAllHandler = std::function<void(const std::vector<LeftOver>&)>;

  ProcessClient(boost::asio::io_context& io, WardenHandle warden, Handlers handlers);
  ProcessClient(const ProcessClient&) = delete;
  ProcessClient& operator=(const ProcessClient&) = delete;
  ~ProcessClient();

  void Spawn(WorkerId id, const SpawnCommand& command);

  // To the worker's process group; nothing happens when it has ended.
  void Signal(WorkerId id, int signo);
  // To the process groups of all workers that have not ended.
  void SignalAll(int signo);

  // SIGKILL to everything that workers are and have started, also in earlier rounds, wherever it hid. Answers
  // when nothing is left, or after `limit` with what is. What an earlier answer has named is named again, but
  // not waited for again. A Spawn before the answer ends as NeverStarted{kCancelled}.
  void KillAll(Duration limit, KillAllHandler done);

  // A dead man's switch: when `deadline` comes without another Fence or an Unfence, the warden kills all as
  // in KillAll, also while this process is stopped, or right after the machine has been suspended. `fenced`
  // is called before the `ended` of those whom it killed; from the deadline until the next Fence or Unfence a
  // Spawn ends as NeverStarted{kCancelled}. A deadline that has passed counts as one that comes now. Cheap:
  // meant to be called with every sign of life.
  void Fence(BootTime deadline);
  void Unfence();

  // The file that `fd` (O_PATH) was opened by goes when this process has gone, however that happens. Borrowed
  // until it returns.
  void RemoveAtEnd(int fd);

  // When the last words are said (warden_protocol.h): whenever this process ends, or only where this object
  // has not been destroyed before, as with SIGKILL.
  enum class SayAt { kAnyEnd, kDeathOnly };
  // When this process has ended and nothing that it has started is left, the warden writes `words` on the
  // connected stream socket `fd`, and ends it. It replaces, and closes, what an earlier call gave. `fd` is
  // borrowed until it returns. As long as it is open here, too, its other end does not see an end.
  //   Errors: kResourceExhausted, kUnavailable (no warden): there are none now, of an earlier call either.
  absl::Status LastWords(int fd, const std::string& words, SayAt when = SayAt::kDeathOnly);
  // From now on there are none.
  void DropLastWords();

  // Lets the warden kill what is left and exit; the destructor waits for that. Saves time when the caller has other
  // work to do before the destructor. No call may follow, and no handler is called any more.
  //   REQUIRES: no worker runs and every KillAll is answered.
  void EndWarden();

  pid_t warden_pid() const { return warden_pid_; }
  // Checks the warden now, as the timer does each second; the timer does not expire any more.
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
    int64_t pings_left = 0;  // it is answered before so many more, or the warden is stuck
  };

  void Later(std::function<void()> f);

  void Send(Message message);
  void Flush();
  void Read();
  // False: the warden has closed its end.
  bool ReadEvents();
  void OnEvent(const warden_protocol::Event& event);
  void End(WorkerId id, const ExitInfo& exit, const ResourceUse& use = {});
  // Looks at the warden as long as something is expected from it.
  void Watch();
  // Only ends of workers are expected from the warden, it is not stopped, and no ping is due. A ping is due
  // at each fifth call: a warden that blocks or loops cannot be seen from outside.
  bool WardenIsIdle();
  void PingLater();
  void OnPingTime();
  // What the warden has not done in its time; empty: nothing.
  std::string Overdue();
  // Waits until the warden has ended and takes its status; none: it did not within `limit`.
  std::optional<int> AwaitWardenEnd(int socket, Duration limit);
  void LoseWarden();
  void GoOnWithoutWarden(const std::string& why);
  // Kills what can be killed, takes the ends of children; who is left.
  std::vector<ProcessEntry> KillOnce() const;
  void KillWithoutWarden(TimePoint deadline);

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer room_timer_;  // the kernel had no memory for a message
  boost::asio::steady_timer ping_timer_;
  boost::asio::steady_timer look_timer_;  // once the warden is lost
  const pid_t warden_pid_;
  const std::vector<pid_t> foreign_children_;
  const Handlers handlers_;
  Alive alive_;

  UniqueFd line_;        // of the last words that are not to be said at an ordinary end; none: there are none
  bool ending_ = false;  // EndWarden was called
  bool lost_ = false;
  bool killing_ = false;           // what the lost warden has left
  bool waiting_for_room_ = false;  // the next message cannot be sent now
  bool watching_ = false;          // ping_timer_ runs
  int checks_to_ping_ = 0;         // calls of WardenIsIdle until a ping is due
  int unanswered_ = 0;             // pings since the warden said anything
  std::deque<Message> outbox_;
  std::map<WorkerId, Worker> workers_;            // spawned, not ended
  std::map<WorkerId, Worker> ended_with_warden_;  // those of the lost warden, `ended` not yet called
  std::map<uint64_t, PendingKill> kills_;
  uint64_t next_kill_ = 1;
};

}  // namespace ddprun
