// The log directory of a run, and the thread for its file system, which may not respond.
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

//   Order:   each callback runs once, on `io`, but never after its call was cancelled or the LogDirectory was
//            destroyed.
//   Threads: the thread that runs `io`.
class LogDirectory {
 public:
  // Begins to create the run's directory (see config->log_dir) and the directories for the first start.
  // `config` and `log` are borrowed. If the file system takes more than 5 s, this is logged.
  LogDirectory(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log);
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  // Calls `done` with OK when the directory exists. If --log-dir is not given and the temporary directory
  // cannot be used, as on a read-only file system, the status is also OK, and there are no log files.
  void WhenOpen(std::function<void(const absl::Status&)> done);

  // Opens the files of a start. `done` may be called from within this call.
  //   REQUIRES: WhenOpen has returned OK.
  void OpenFiles(std::shared_ptr<StartFiles> files, std::function<void()> done);
  void CancelOpenFiles();

  // See LogLayout::AttemptDir. REQUIRES: WhenOpen has returned OK.
  std::string AttemptDir(int restart_count) const { return layout_->AttemptDir(restart_count); }

  // The thread for other work on this file system.
  DiskThread& disk() { return disk_; }

  // Must be the last call. Removes the empty directories that this object created. Calls `done` when all work
  // on the file system is finished. If there is no progress for `limit`, logs this and calls `done`.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Made {
    absl::Status status;
    std::shared_ptr<LogLayout> layout;  // null: see `status`
  };

  void OnMade();
  // Unless patience_ is cancelled within 5 s, logs that the file system does not respond, with `consequence`.
  void LogIfSlow(const std::string& consequence);
  std::string Name() const;  // "the log directory X"

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  DiskThread disk_;
  boost::asio::steady_timer patience_;
  // Written by the job that creates the directory; read on `io` once that job is done.
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  bool is_made_ = false;
  bool flushed_ = false;  // Flush was called
  std::function<void(const absl::Status&)> when_open_;
  std::shared_ptr<LogLayout> layout_;  // null before OnMade; used by jobs, and on `io` while no job is queued
  int opening_ = 0;                    // number of calls to OpenFiles and CancelOpenFiles
  Alive alive_;
};

}  // namespace ddprun
