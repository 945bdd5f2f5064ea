// Creates the log directory of a run and opens the log files in it. File-system calls may block, so they run
// in a separate thread.
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

//   Order:   each callback runs at most once, on `io`. It does not run after its operation was cancelled or
//            after this object was destroyed.
//   Threads: the thread that runs `io`.
class LogDirectory {
 public:
  // Starts creating the run's directory (see config->log_dir) and the directories for the first start of the
  // workers. Logs a message if they are not created within 5 s. `config` and `log` are borrowed.
  LogDirectory(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log);
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  // Calls `done` with OK when the directory exists, or with an error if it cannot be created. If --log-dir is
  // not given and the temporary directory cannot be used, for example because its file system is read-only,
  // the status is OK and no log files are written.
  void WhenOpen(std::function<void(const absl::Status&)> done);

  // Opens the files for one start of the workers, then calls `done`, in some cases before this call returns.
  //   REQUIRES: WhenOpen has reported OK.
  void OpenFiles(std::shared_ptr<StartFiles> files, std::function<void()> done);
  // Cancels a pending OpenFiles: its `done` is not called.
  void CancelOpenFiles();

  // See LogLayout::AttemptDir. REQUIRES: WhenOpen has reported OK.
  std::string AttemptDir(int restart_count) const { return layout_->AttemptDir(restart_count); }

  // The thread for file-system calls. Callers may add other jobs on the same file system.
  DiskThread& disk() { return disk_; }

  // Removes the empty directories that this object created, and calls `done` when all jobs of disk() have
  // finished. If a period of `limit` passes in which no job finishes, logs this and calls `done`. After
  // Flush, no other method may be called.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct Made {
    absl::Status status;
    std::shared_ptr<LogLayout> layout;  // null if the directory cannot be created; `status` has the reason
  };

  void OnMade();
  // Logs that the file system does not respond, unless patience_ is cancelled within 5 s. `consequence` is a
  // clause that is appended to the message.
  void LogIfSlow(const std::string& consequence);
  // Returns a name of the directory for messages, for example "the log directory X".
  std::string Name() const;

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  AgentLog& log_;
  DiskThread disk_;
  boost::asio::steady_timer patience_;
  // Written by the job that creates the directory; read on `io` after that job has finished.
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  bool is_made_ = false;
  bool flushed_ = false;  // Flush was called
  std::function<void(const absl::Status&)> when_open_;
  // Null before OnMade and after Flush. Modified by jobs, and on `io` only while disk_ is idle.
  std::shared_ptr<LogLayout> layout_;
  int opening_ = 0;  // number of calls to OpenFiles and CancelOpenFiles; identifies the latest OpenFiles
  Alive alive_;
};

}  // namespace ddprun
