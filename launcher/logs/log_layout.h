// The layout of the workers' files:
//   <base>/<run id>_<8 random>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
//   <base>/<run id>_<8 random>/attempt_<restart count>/{filtered_stdout.log,filtered_stderr.log}
// A start that uses no restart, for example after a membership change, has the same restart count as the
// previous start. The directory of the previous start is then renamed to attempt_<restart count>.<k>, where
// k = 1 is the oldest. So no file is overwritten, and attempt_<restart count> always has the newest files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Paths of the files of one worker in one attempt; empty: no such file.
struct WorkerFiles {
  std::string stdout_log = {};
  std::string stderr_log = {};
  std::string error_json = {};
};

struct AttemptFiles {
  std::string dir = {};  // empty: no files
  std::vector<WorkerFiles> workers = {};
  // Shared by all workers.
  std::string filtered_stdout_log = {};
  std::string filtered_stderr_log = {};
};

// The value of --log-dir that disables log files.
inline constexpr absl::string_view kLogsOff = "/dev/null";

// The name of a run's directory without its random suffix. A '/' in the run id becomes '_'.
std::string RunDirectoryPrefix(absl::string_view run_id);

// One object for each run of the launcher. Non-const functions and the destructor may block on the file
// system.
class LogLayout {
 public:
  // `base` is the value of --log-dir; the directory is created if it does not exist. Empty: a new directory
  // below the temporary directory. "/dev/null": no files.
  //   Errors: that of the failed system call, with the path.
  static absl::StatusOr<LogLayout> Create(absl::string_view base, absl::string_view run_id);

  LogLayout(LogLayout&&) = default;
  LogLayout& operator=(LogLayout&&) = delete;
  // Removes the empty directories that this object created, except directories of attempts in a base given by
  // the user.
  ~LogLayout();

  // Creates the directories of an attempt ahead of NewAttempt, which removes them if it is called for another
  // attempt. Errors are ignored here; NewAttempt reports them.
  //   REQUIRES: there was no attempt with this restart count.
  void PrepareAttempt(int restart_count, int num_workers);
  // True if NewAttempt will not access the file system.
  bool IsPrepared(int restart_count, int num_workers) const;
  // Creates the directories of an attempt and returns its files, by local rank. Call once for each start,
  // after the workers of the previous start have ended.
  absl::StatusOr<AttemptFiles> NewAttempt(int restart_count, int num_workers);

  // The directory of the newest attempt with this restart count; empty if logs are off.
  std::string AttemptDir(int restart_count) const;
  // No files are created.
  bool off() const { return run_dir_.empty(); }
  // The run's directory; empty if logs are off.
  const std::string& run_dir() const { return run_dir_; }

 private:
  LogLayout() = default;

  struct Attempt {
    int restart_count = 0;
    int num_workers = 0;
    std::string dir = {};

    std::string worker_dir(int local_rank) const;
    absl::Status Make() const;
    void RemoveIfEmpty() const;
  };

  std::string run_dir_;
  std::unique_ptr<const Attempt> prepared_;
  std::vector<Attempt> attempts_;
  std::string temporary_base_;  // base that was created because none was given; empty: one was given
};

}  // namespace ddprun
