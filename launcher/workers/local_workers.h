// Manages the workers of this node: starts, signals and kills them, forwards their output and reports, and
// records their failures.
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
#include "base/worker_evidence.h"
#include "base/worker_message.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/agent/agent_world.h"
#include "launcher/agent/background_task.h"
#include "launcher/config/launch_config.h"
#include "launcher/gpu/gpu_watch.h"
#include "launcher/logs/console.h"
#include "launcher/logs/log_directory.h"
#include "launcher/logs/worker_output.h"
#include "launcher/monitor/worker_monitor.h"
#include "launcher/process/warden_client.h"
#include "launcher/progress/heartbeat_files.h"
#include "launcher/progress/worker_activity.h"
#include "launcher/report/oom_evidence.h"
#include "launcher/workers/node_failures.h"
#include "launcher/workers/notice_file.h"
#include "launcher/workers/output_plans.h"
#include "launcher/workers/worker_environment.h"
#include "launcher/workers/worker_socket.h"
#include "os/boot_clock.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// The limit of LocalWorkers::CollectEvidence.
inline constexpr Duration kEvidenceLimit = milliseconds(4500);
// The limits of LocalWorkers::CollectStacks, without and with native stacks.
inline constexpr Duration kStacksLimit = seconds(5);
inline constexpr Duration kNativeStacksLimit = seconds(12);

// Never blocks `io`. If a file system does not respond, the workers start only after it responds again, and
// `gone` is delayed by at most kDrainLimit (2 s).
//   Order:   call Open once; then alternate Start and KillAll, and call Start only after `gone` has been
//            called for the last KillAll, or when all workers have parked. Handlers run on `io`, never inside a call.
//   Threads: the thread that runs `io`.
class LocalWorkers {
 public:
  struct Handlers {
    std::function<void(LocalRank, pid_t)> started;          // exec has succeeded
    std::function<void(LocalRank, const ExitInfo&)> ended;  // failures() already includes a failure
    // A worker asks to survive its round, or no longer can, because its connection was closed.
    std::function<void(LocalRank, bool asks)> survives;
    std::function<void(LocalRank, Round, const std::string& why)> parked;
    // KillAll is complete: no process is left except the workers to spare and those described in `unkillable`, and the
    // output has been forwarded, or kDrainLimit has passed.
    std::function<void(const std::vector<std::string>& unkillable)> gone;
    std::function<void(const WorkerReport&)> reported;
    // Called for each worker report that mentions a snapshot. `step` is the step of the worker's newest
    // snapshot.
    std::function<void(Round, int64_t step)> snapshot;
    std::function<void(const WatchdogNote&)> watchdog;
    std::function<void()> fenced;  // the fence's deadline has passed; the workers are being killed
    std::function<void(const absl::Status&)> broken;  // no more workers can be started
  };

  // `config`, `log` and `logs` must outlive this object. During the lifetime of this object, the log is
  // written to stderr through the console, like the workers' output, so that a slow reader does not block
  // `io`. `host` is this node's short name.
  LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log, LogDirectory* logs,
               std::string host, WardenHandle warden, Handlers handlers);
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;
  ~LocalWorkers() { log_.SendTo({}); }

  // `done` is called once, on `io`.
  //   Errors: the log directory, the watchdog's FIFO, or the workers' devices or processors are not
  //           available. A failure to open the socket for worker reports is only logged.
  void Open(std::function<void(const absl::Status&)> done);

  // A worker that is signalled or killed while its files are still being opened ends as NeverStarted. The workers in `keep`
  // have parked: they keep their processes, files, timers and OOM counters, and get an offer of their place.
  void Start(const Assignment& assignment, const NodeNetwork& network = {},
             const std::set<LocalRank>& keep = {});
  void Signal(int signo, const std::set<LocalRank>& spare = {});
  void KillAll(const std::set<LocalRank>& spare = {});
  // Sends `levels` to workers that have asked to survive.
  void TellSurvivors(const std::set<LocalRank>& who, const AgentRequest& levels);
  // Adds to failures() that a worker has parked without being asked.
  void RecordParked(LocalRank local_rank, const std::string& why);
  // Arms the fence: the workers are killed at `deadline`, even if this process is stopped. nullopt disarms
  // the fence.
  void Fence(std::optional<BootTime> deadline);
  // Asks workers that use the SDK over their socket. With `stop`, also writes the notice file, and sends the first signal of
  // --preempt-signal to the workers that have not reported over the socket.
  void AskForSnapshot(Round round, const std::optional<WorkerStop>& stop = {});
  // When this process has died and no process of its workers is left, the warden writes `words` to the
  // connection `fd` (borrowed), unless SayNothingWhenDead has been called.
  //   Errors: see WardenClient::LastWords.
  absl::Status SayWhenDead(int fd, const std::string& words) { return processes_.LastWords(fd, words); }
  void SayNothingWhenDead() { processes_.DropLastWords(); }

  // Returns the process of this worker; 0 if it has not started, or has ended.
  pid_t PidOf(LocalRank local_rank) const;
  // Sets the round in `heartbeat` and, if the workers have reported, the step and the phase of the slowest
  // worker.
  void FillIn(proto::Heartbeat& heartbeat) const;
  std::optional<Duration> Waited(LocalRank worker) const;  // see AgentWorld
  // Finds out what the workers do, within kEvidenceLimit, then calls `done` once, on `io`. Workers that have ended are not in the
  // result. `missing`: what could not be collected, and what would allow it; one line each.
  void CollectEvidence(
      std::function<void(std::vector<WorkerEvidence>, std::vector<std::string> missing)> done);
  // Collects the stacks of workers, within kStacksLimit or kNativeStacksLimit, then calls `done` once, on `io`. One call at a time:
  // others get no stacks, and are told so.
  void CollectStacks(const proto::CollectStacks& order, std::function<void(proto::Stacks)> done);
  // Signs of progress besides reports; see AgentWorld.
  AgentWorld::WorkerSigns Signs();
  bool LookForActivity(std::function<void(std::vector<LocalRank>)> done);
  std::optional<int64_t> SlowestStep(Round round) const;
  int64_t FurthestStep(Round round) const;
  // Whether each worker's last report in `round` says that all steps are done.
  bool SayFinished(Round round) const;

  // The failures of this round. They are complete after CompleteFailures, which must be called after `gone`.
  const NodeFailures& failures() const { return failures_; }
  void CompleteFailures();
  // The directory for the files of the current start; empty if there is none.
  const std::string& attempt_dir() const { return attempt_dir_; }
  // Writes `text` to the file `path` in the log directory after all earlier writes to that directory, then
  // calls `done`. An older file of that name is kept (KeepOlderFile).
  void WriteFile(const std::string& path, const std::string& text,
                 std::function<void(const absl::Status&)> done);

  // Must be the last call, after `gone`. Ends the warden, flushes the log directory, then the console, and
  // then calls `done`. Each flush ends early if there is no progress for `limit`; for the log directory,
  // this is logged.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Worker {
    LocalRank local_rank;
    pid_t pid = 0;
    TimePoint started = {};  // of the round, if the worker was kept
    std::string error_file = {};
    std::optional<int> last_signal = {};  // nullopt if no signal was sent to the worker in this round
    std::optional<WorkerReport> earlier_report = {};  // the last one in the rounds that it has survived
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  // The second part of Open, after the log directory has been opened.
  absl::Status OpenRest();
  void StartWith(StartFiles& files);
  // Cancels a start whose files are still being opened.
  void CancelStart();
  // Reads the error file at `path` and adds its error to the record with index `failure`.
  void ReadErrorFile(size_t failure, const std::string& path);
  // Calls `gone` once nothing is pending after KillAll.
  void CheckGone();
  void OnStarted(WardenClient::WorkerId id, pid_t pid);
  void OnSlowStart(WardenClient::WorkerId id, const LeftOver& process);
  // Logs the same text as torchrun.
  void LogSent(int signo, pid_t pid) const;
  void OnEnded(WardenClient::WorkerId id, const ExitInfo& exit);
  void OnStuck(pid_t pid, const std::string& where);
  // Whether a worker that asks to survive may be registered. `process` is the one that asks.
  bool OnAsksToSurvive(const WorkerSurvival& survival, pid_t process);
  // Returns the running worker; null if there is none.
  const Worker* Running(LocalRank local_rank) const;
  // Asks NCCL's RAS, if it is time, which workers have launched operations. May call `done` later.
  void LookForOperations(std::function<void(std::vector<LocalRank>)> done);
  std::vector<LocalRank> WithPids(const std::vector<pid_t>& pids) const;
  // See GpuWatch::UseReader; null also if the reader before still runs.
  std::function<std::vector<GpuUse>()> GpuUseReader();
  // The processes of the workers that have not ended.
  std::vector<pid_t> Pids() const;
  // Returns the worker's last report, which may be of a round that it has survived; nullopt if there is none.
  std::optional<WorkerReport> ReportOf(const Worker& worker) const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  const std::string host_;
  const Handlers handlers_;
  const EnvVars environment_;
  std::vector<std::set<int>> cpus_;  // by local rank; set by Open
  LogDirectory& logs_;
  Console console_;
  std::unique_ptr<WorkerSocket> reports_;  // null if the socket could not be opened
  bool told_of_stranger_ = false;          // OnAsksToSurvive has logged a request that it ignores

  // State of the last start:
  Assignment assignment_;
  NodeNetwork network_;
  int64_t start_ = 0;        // number of starts
  bool opening_ = false;     // the workers' files are being opened
  bool stop_asked_ = false;  // AskForSnapshot has asked the workers to stop
  std::string attempt_dir_;
  std::vector<std::unique_ptr<WorkerOutput>> outputs_;  // by local rank
  std::set<LocalRank> drained_;                         // whose outputs_ need no further Drain
  std::shared_ptr<FilteredLog> filtered_stdout_, filtered_stderr_;
  std::set<LocalRank> keep_;  // workers of this start that were not started
  NodeFailures failures_;
  std::optional<OomWatch> oom_watch_;
  GpuWatch gpu_watch_;

  HeartbeatFiles heartbeats_;
  ActivityTable activity_;
  TimePoint ask_ras_at_;  // NCCL's RAS, for signs of progress
  LastWork stacks_work_, activity_work_, operations_work_, gpu_use_work_;

  WorkerMonitor watch_;
  WardenClient processes_;
  NoticeFile notice_file_;
  std::map<WardenClient::WorkerId, Worker> workers_;  // workers that have not ended
  WardenClient::WorkerId next_worker_ = 1;
  int unread_ = 0;                       // error files of this start that are being read
  bool killed_ = false;                  // the warden has completed KillAll; `gone` has not been called yet
  int undrained_ = 0;                    // number of outputs_ that are still being drained; valid if killed_
  std::vector<std::string> unkillable_;  // argument of `gone`
  boost::asio::steady_timer drain_;      // time limit for reading error files; runs if killed_
};

}  // namespace ddprun
