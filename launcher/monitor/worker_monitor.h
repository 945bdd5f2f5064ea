// Watches the running workers from outside, with the watchdog and the detection of stuck workers.
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

//   Threads: the thread that runs `io`; handlers run on it, never inside a call.
class WorkerMonitor {
 public:
  struct Handlers {
    std::function<void(const WatchdogNote&)> note;
    // The worker is stuck: no signal ends it. Called once per worker.
    std::function<void(pid_t pid, const std::string& where)> stuck;
  };

  // `config` and `log` must outlive this object.
  WorkerMonitor(boost::asio::io_context& io, const LaunchConfig* config, const AgentLog* log,
                Handlers handlers);

  // `processes` starts the workers. It also removes the watchdog's FIFO, however this process ends.
  //   Errors: the watchdog's FIFO cannot be created.
  absl::Status Open(WardenClient& processes);
  // The path of the watchdog's FIFO; empty: the watchdog is off.
  std::string timer_file() const { return watchdog_ ? watchdog_->path() : ""; }

  void BeginRound();
  void Started(pid_t pid) { stuck_.Add(pid); }
  void Ended(pid_t pid) { stuck_.Remove(pid); }
  void Gone();
  // Why the watchdog signalled the process, as a clause; empty: the watchdog did not signal it.
  std::string CauseOf(pid_t pid) const { return watchdog_ ? watchdog_->ExpiredTimerOf(pid) : ""; }

 private:
  void NoteExpired(const ExpiredTimers& expired) const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  const Handlers handlers_;
  StuckProcessMonitor stuck_;
  std::unique_ptr<Watchdog> watchdog_;  // null: off
};

}  // namespace ddprun
