// What watches the running workers from outside: torchrun's watchdog, and the look for those that are stuck.
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
#include "launcher/process/process_client.h"

namespace ddprun {

//   Threads: that of `io`, from which the handlers are called, never from inside a call.
class WorkerMonitor {
 public:
  struct Handlers {
    std::function<void(const WatchdogNote&)> note;
    // The worker does not end whatever it is sent. Once for each.
    std::function<void(pid_t pid, const std::string& where)> stuck;
  };

  // `config` and `log` outlive this.
  WorkerMonitor(boost::asio::io_context& io, const LaunchConfig* config, const AgentLog* log,
                Handlers handlers);

  // `processes` starts the workers; it sees to it that the watchdog's file is removed however this process
  // ends.
  //   Errors: the watchdog's file cannot be made.
  absl::Status Open(ProcessClient& processes);
  // Empty: there is no watchdog.
  std::string timer_file() const { return watchdog_ ? watchdog_->path() : ""; }

  void BeginRound();
  void Started(pid_t pid) { stuck_.Add(pid); }
  void Ended(pid_t pid) { stuck_.Remove(pid); }
  void Gone();
  // Why it was ended from here, as the end of a sentence; empty: it was not.
  std::string CauseOf(pid_t pid) const { return watchdog_ ? watchdog_->ExpiredTimerOf(pid) : ""; }

 private:
  void TellExpired(const ExpiredTimers& expired) const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  const Handlers handlers_;
  StuckProcessMonitor stuck_;
  std::unique_ptr<Watchdog> watchdog_;  // null: not wanted
};

}  // namespace ddprun
