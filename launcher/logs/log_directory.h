// The run's log directory and the thread that works on its file system, which may not answer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/alive.h"
#include "base/time.h"
#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/log_layout.h"
#include "launcher/workers/output_plans.h"

namespace ddprun {

//   Order:   callbacks are called from `io`, once; those of a call that was cancelled, and all of a LogDirectory that
//            is destroyed, never.
//   Threads: that of `io`.
class LogDirectory {
 public:
  // Begins to make the directory of config->log_dir and what the first start needs in it. `config` and `log` are
  // borrowed. A wait of more than 5 s for the file system is logged.
  LogDirectory(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log);
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  // `done` when the directory is there. OK also if it cannot be made below the temporary directory: a job on a
  // read-only file system needs no log files.
  void WhenOpen(std::function<void(const absl::Status&)> done);

  // Opens the files of a start; `done` may be called from within. REQUIRES: WhenOpen has given OK.
  void OpenFiles(std::shared_ptr<StartFiles> files, std::function<void()> done);
  void CancelOpenFiles();

  // As LogLayout::AttemptDir. REQUIRES: WhenOpen has given OK.
  std::string AttemptDir(int restart_count) const { return layout_->AttemptDir(restart_count); }

  // For other work on this file system, in the order of the calls.
  DiskThread& disk() { return disk_; }

  // The last call. Removes the empty directories that it made. `done` comes when the file system has done all work, or
  // after `limit` without progress, which is logged.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Made {
    absl::Status status;
    std::shared_ptr<LogLayout> layout;  // null: see `status`
  };

  void OnMade();
  // Unless patience_ is cancelled within 5 s, logs that the file system does not answer, and `consequence`.
  void LogIfSlow(const std::string& consequence);
  std::string Name() const;  // "the log directory X"

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  DiskThread disk_;
  boost::asio::steady_timer patience_;
  // Written by the job that makes the directory; read here from OnMade on.
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  bool is_made_ = false;
  bool flushed_ = false;  // Flush was called
  std::function<void(const absl::Status&)> when_open_;
  std::shared_ptr<LogLayout> layout_;  // null before OnMade; used by jobs, and here while none is queued
  int opening_ = 0;                    // the newest call of OpenFiles or CancelOpenFiles
  Alive alive_;
};

}  // namespace ddprun
