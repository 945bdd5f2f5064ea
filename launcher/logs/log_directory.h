// The log directory of a run, and the thread for its file system, which may not answer.
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

//   Order:   callbacks run once, on `io`; those of a cancelled call or of a destroyed LogDirectory never run.
//   Threads: the thread of `io`.
class LogDirectory {
 public:
  // Begins to create the directory of config->log_dir and the directories of the first start. `config` and
  // `log` are borrowed. A wait of more than 5 s for the file system is logged.
  LogDirectory(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log);
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  // Calls `done` when the directory exists. The status is also OK, without log files, if --log-dir is not
  // given and the temporary directory cannot be used, as on a read-only file system.
  void WhenOpen(std::function<void(const absl::Status&)> done);

  // Opens the files of a start. `done` may be called from within this call.
  //   REQUIRES: WhenOpen has returned OK.
  void OpenFiles(std::shared_ptr<StartFiles> files, std::function<void()> done);
  void CancelOpenFiles();

  // See LogLayout::AttemptDir. REQUIRES: WhenOpen has returned OK.
  std::string AttemptDir(int restart_count) const { return layout_->AttemptDir(restart_count); }

  // Runs other work on this file system.
  DiskThread& disk() { return disk_; }

  // Must be the last call. Removes the empty directories that this object created. Calls `done` when all work
  // on the file system is finished, or after `limit` without progress, which is logged.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Made {
    absl::Status status;
    std::shared_ptr<LogLayout> layout;  // null: see `status`
  };

  void OnMade();
  // Logs `consequence`, and that the file system does not answer, unless patience_ is cancelled within 5 s.
  void LogIfSlow(const std::string& consequence);
  std::string Name() const;  // "the log directory X"

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  DiskThread disk_;
  boost::asio::steady_timer patience_;
  // Written by the job that creates the directory; read on `io` after OnMade.
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  bool is_made_ = false;
  bool flushed_ = false;  // Flush was called
  std::function<void(const absl::Status&)> when_open_;
  std::shared_ptr<LogLayout> layout_;  // null before OnMade; used by jobs, and here while none is queued
  int opening_ = 0;                    // number of the last call of OpenFiles or CancelOpenFiles
  Alive alive_;
};

}  // namespace ddprun
