// The workers of this node: starts, signals and kills them, forwards their output and reports, and records
// their failures.
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
#include "launcher/process/warden_client.h"
#include "launcher/report/oom_evidence.h"
#include "launcher/workers/node_failures.h"
#include "launcher/workers/output_plans.h"
#include "launcher/workers/worker_environment.h"
#include "launcher/workers/worker_socket.h"
#include "os/boot_clock.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// A file system that does not respond delays a start until it responds, and the answer to KillAll by at most
// kDrainLimit. It never blocks `io`.
//   Order:   Open once; then Start and KillAll alternate, and Start follows the `gone` of the last KillAll.
//            Handlers run on `io`, never inside a call.
//   Threads: the thread that runs `io`.
class LocalWorkers {
 public:
  struct Handlers {
    std::function<void(LocalRank, pid_t)> started;          // exec has succeeded
    std::function<void(LocalRank, const ExitInfo&)> ended;  // failures() includes it, unless it succeeded
    // Answers KillAll: no process is left except `unkillable` (descriptions), and the output has been
    // forwarded (or kDrainLimit has passed).
    std::function<void(const std::vector<std::string>& unkillable)> gone;
    // A worker reports its newest snapshot; repeated with its later reports.
    std::function<void(Round, int64_t step)> snapshot;
    std::function<void(const WatchdogNote&)> watchdog;
    std::function<void()> fenced;  // the fence's deadline has passed; the workers are being killed
    std::function<void(const absl::Status&)> broken;  // no further worker can be started
  };

  // `config`, `log` and `logs` must outlive this. Until the destructor, the log is written to stderr in the
  // same way as the workers' output, so that a slow reader does not block it. `host`: this node's short name.
  LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log, LogDirectory* logs,
               std::string host, WardenHandle warden, Handlers handlers);
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;
  ~LocalWorkers() { log_.SendTo({}); }

  // `done` is called once, from `io`.
  //   Errors: the log directory, the watchdog's file, or the devices and processors of the workers are not
  //           available. A missing socket for reports is only logged.
  void Open(std::function<void(const absl::Status&)> done);

  // Workers whose files are still being opened when they are signalled or killed end as NeverStarted.
  void Start(const Assignment& assignment, const NodeNetwork& network = {});
  void Signal(int signo);
  void KillAll();
  // The workers are killed at `deadline`, even while this process is stopped; none: disarms the fence.
  void Fence(std::optional<BootTime> deadline);
  void AskForSnapshot(Round round);
  // When this process has died and nothing of its workers is left, the warden writes `words` to the
  // connection `fd` (borrowed), unless SayNothingWhenDead has been called.
  //   Errors: see WardenClient::LastWords.
  absl::Status SayWhenDead(int fd, const std::string& words) { return processes_.LastWords(fd, words); }
  void SayNothingWhenDead() { processes_.DropLastWords(); }

  // Sets round, step and phase, from the workers' reports; see proto::Heartbeat.
  void FillIn(proto::Heartbeat& heartbeat) const;
  int64_t FurthestStep(Round round) const;

  // Of this round; complete after CompleteFailures, to be called after `gone`.
  const NodeFailures& failures() const { return failures_; }
  void CompleteFailures();
  // Directory of this start's files; empty: none.
  const std::string& attempt_dir() const { return attempt_dir_; }
  // Writes a file in the log directory, after all earlier writes there.
  void WriteFile(const std::string& path, const std::string& text,
                 std::function<void(const absl::Status&)> done);

  // The last call, after `gone`. `done` is called when the log directory and the console have written all
  // output, or after `limit` each without progress; what is missing in the log directory is logged.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Worker {
    LocalRank local_rank;
    pid_t pid = 0;
    TimePoint started = {};
    std::string error_file = {};
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  // Parts of Open, before and after the log directory is opened.
  absl::Status CheckDevices();
  absl::Status OpenRest();
  void StartWith(StartFiles& files);
  // Cancels a start whose files are still being opened.
  void CancelStart();
  // Adds the error file at `path` to the record with index `failure`.
  void ReadErrorFile(size_t failure, const std::string& path);
  // Answers KillAll once nothing is pending.
  void CheckGone();
  void OnStarted(WardenClient::WorkerId id, pid_t pid);
  void OnSlowStart(WardenClient::WorkerId id, const LeftOver& process);
  // Logs torchrun's text.
  void LogSent(int signo, pid_t pid) const;
  void OnEnded(WardenClient::WorkerId id, const ExitInfo& exit);
  void OnStuck(pid_t pid, const std::string& where);
  // The worker's last report in this round; none: it sent none.
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

  // Of the last start:
  Assignment assignment_;
  NodeNetwork network_;
  int64_t start_ = 0;     // number of starts
  bool opening_ = false;  // its files are being opened
  std::string attempt_dir_;
  std::vector<std::unique_ptr<WorkerOutput>> outputs_;  // by local rank
  std::optional<int> last_signal_sent_;                 // to the workers
  NodeFailures failures_;
  std::optional<OomWatch> oom_watch_;

  WorkerMonitor watch_;
  WardenClient processes_;
  std::map<WardenClient::WorkerId, Worker> workers_;  // not ended
  WardenClient::WorkerId next_worker_ = 1;
  int unread_ = 0;                       // error files of this start that are being read
  bool killed_ = false;                  // all processes are killed, `gone` has not been called yet
  int undrained_ = 0;                    // outputs_ that are being drained, if killed_
  std::vector<std::string> unkillable_;  // argument of `gone`
  boost::asio::steady_timer drain_;      // limit for unread_, if killed_
};

}  // namespace ddprun
