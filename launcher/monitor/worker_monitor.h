// Watches the running workers: combines the watchdog with the detection of stuck processes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/config/launch_config.h"
#include "launcher/monitor/stuck_process_monitor.h"
#include "launcher/monitor/watchdog.h"
#include "launcher/process/warden_client.h"

namespace ddprun {

//   Order:   handlers run on `io`. `note` may run during BeginRound and Gone; otherwise, handlers do not run
//            during a call to this object.
//   Threads: the thread that runs `io`.
class WorkerMonitor {
 public:
  struct Handlers {
    std::function<void(const WatchdogNote&)> note;
    // Called when a worker has been in uninterruptible sleep for config->uninterruptible_timeout, once per
    // sleep. During the sleep, no signal terminates the worker. `where`: see StuckProcessMonitor::Handler.
    std::function<void(pid_t pid, const std::string& where)> stuck;
  };

  // `config` and `log` must outlive this object.
  WorkerMonitor(boost::asio::io_context& io, const LaunchConfig* config, const AgentLog* log,
                Handlers handlers);

  // Opens the watchdog if it is configured. `processes` is the client of the warden that starts the workers.
  // The warden removes the watchdog's FIFO after this process has ended, even if this process was killed.
  //   Errors: see Watchdog::Open.
  absl::Status Open(WardenClient& processes);
  // The path of the watchdog's FIFO; empty if the watchdog is off.
  std::string timer_file() const { return watchdog_ ? watchdog_->path() : ""; }

  // `kept`: processes of the round before that go on in this one.
  void BeginRound(const std::vector<pid_t>& kept = {});
  void Started(pid_t pid) { stuck_.Add(pid); }
  void Ended(pid_t pid) { stuck_.Remove(pid); }
  // Call when all workers of the round have ended, except those that are kept.
  void Gone(const std::vector<pid_t>& kept = {});
  // Returns a clause that states why the watchdog signalled the process; empty if the watchdog did not signal
  // the process in this round.
  std::string CauseOf(pid_t pid) const { return watchdog_ ? watchdog_->ExpiredTimerOf(pid) : ""; }

 private:
  void NoteExpired(const ExpiredTimers& expired) const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  const Handlers handlers_;
  StuckProcessMonitor stuck_;
  std::unique_ptr<Watchdog> watchdog_;  // null if the watchdog is off
};

}  // namespace ddprun
