// The workers of this node: starts, signals and ends them, passes on what they print and report, and keeps
// how they failed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/ids.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/console.h"
#include "launcher/logs/log_directory.h"
#include "launcher/logs/worker_output.h"
#include "launcher/monitor/worker_monitor.h"
#include "launcher/process/process_client.h"
#include "launcher/report/oom_evidence.h"
#include "launcher/workers/node_failures.h"
#include "launcher/workers/output_plans.h"
#include "launcher/workers/worker_environment.h"
#include "launcher/workers/worker_socket.h"
#include "os/boot_clock.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// A file system that does not answer delays a start until it answers, and an end by kDrainLimit. It never
// blocks `io`.
//   Order:   Open once; then Start and KillAll in turn, Start only when `gone` has answered the KillAll.
//            Handlers are called from `io`, never from inside a call.
//   Threads: that of `io`.
class LocalWorkers {
 public:
  struct Handlers {
    std::function<void(LocalRank, pid_t)> started;          // it runs its program
    std::function<void(LocalRank, const ExitInfo&)> ended;  // failures() has it, if it did not succeed
    // Answers KillAll: nothing of them is left but `unkillable`, in words, and all that they printed has been
    // passed on.
    std::function<void(const std::vector<std::string>& unkillable)> gone;
    // A worker says that its newest snapshot is this one; said again and again.
    std::function<void(Round, int64_t step)> snapshot;
    std::function<void(const WatchdogNote&)> watchdog;
    std::function<void()> fenced;                     // the fence has fallen; they are being killed
    std::function<void(const absl::Status&)> broken;  // no worker can be started any more
  };

  // `config` and `log` outlive this. As long as this lives, the log waits for no reader of stderr either: it
  // goes the way of what workers print there. `host`: this node's short name.
  LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log, LogDirectory* logs,
               std::string host, WardenHandle warden, Handlers handlers);
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;
  ~LocalWorkers() { log_.SendTo({}); }

  // `done` comes once, from `io`. Errors: of the log directory, or of the devices and processors that workers
  // are to have. What else cannot be had is said, and done without.
  void Open(std::function<void(const absl::Status&)> done);

  // Workers that have not started when they are signalled or killed never start: that is how they end.
  void Start(const Assignment& assignment, const NodeNetwork& network = {});
  void Signal(int signo);
  void KillAll();
  // They are killed at `deadline`, whatever this process does; none: they are not.
  void Fence(std::optional<BootTime> deadline);
  void AskForSnapshot(Round round);
  // When this process dies and nothing is left of its workers, the warden writes `words` on the connection
  // `fd` (borrowed), unless SayNothingWhenDead comes before. Errors: those of ProcessClient::LastWords.
  absl::Status SayWhenDead(int fd, const std::string& words) { return processes_.LastWords(fd, words); }
  void SayNothingWhenDead() { processes_.DropLastWords(); }

  // How far they are, by their own reports; see proto::Heartbeat.
  void FillIn(proto::Heartbeat& heartbeat) const;
  int64_t FurthestStep(Round round) const;

  // Of this round; complete after CompleteFailures, which is to be called when they are gone.
  const NodeFailures& failures() const { return failures_; }
  void CompleteFailures();
  // Where the files of this start are; empty: nowhere.
  const std::string& attempt_dir() const { return attempt_dir_; }
  // Writes a file there, after all that was to be written there before.
  void WriteFile(const std::string& path, const std::string& text,
                 std::function<void(const absl::Status&)> done);

  // The last call, when the workers are gone. `done` comes when the log directory and the console have taken all
  // that they were given, or after `limit` each without progress; what the log directory lacks is logged.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Worker {
    LocalRank local_rank;
    pid_t pid = 0;
    TimePoint started = {};
    std::string error_file = {};
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  // Of Open, before and after the log directory.
  absl::Status CheckDevices();
  absl::Status OpenRest();
  void StartWith(StartFiles& files);
  // The start whose files are being opened does not come.
  void CancelStart();
  // Into the record of a failure.
  void ReadErrorFile(size_t failure, const std::string& path);
  // Answers KillAll when nothing is to be waited for any more.
  void CheckGone();
  void OnStarted(ProcessClient::WorkerId id, pid_t pid);
  void OnSlowStart(ProcessClient::WorkerId id, const LeftOver& process);
  // In torchrun's words.
  void SaySent(int signo, pid_t pid) const;
  void OnEnded(ProcessClient::WorkerId id, const ExitInfo& exit);
  void OnStuck(pid_t pid, const std::string& where);
  // What the worker last reported in this round; none if it never did.
  std::optional<proto::WorkerReport> ReportOf(LocalRank local_rank) const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  const std::string host_;
  const Handlers handlers_;
  const EnvVars environment_;
  std::vector<std::set<int>> cpus_;  // by local rank; set by Open
  LogDirectory& logs_;
  Console console_;
  std::unique_ptr<WorkerSocket> reports_;  // null: could not be opened

  // Of the workers that run, or ran last:
  Assignment assignment_;
  NodeNetwork network_;
  int64_t start_ = 0;     // how many there were
  bool opening_ = false;  // the files of this start
  std::string attempt_dir_;
  std::vector<std::unique_ptr<WorkerOutput>> outputs_;  // by local rank
  std::optional<int> last_signal_sent_;                 // the last signal that they were sent
  NodeFailures failures_;
  std::optional<OomWatch> oom_watch_;

  WorkerMonitor watch_;
  ProcessClient processes_;
  std::map<ProcessClient::WorkerId, Worker> workers_;  // not ended
  ProcessClient::WorkerId next_worker_ = 1;
  int unread_ = 0;                       // error files of this start
  bool killed_ = false;                  // nothing runs any more, and that is still to be told
  int undrained_ = 0;                    // of outputs_, then
  std::vector<std::string> unkillable_;  // likewise
  boost::asio::steady_timer drain_;      // likewise
};

}  // namespace ddprun
