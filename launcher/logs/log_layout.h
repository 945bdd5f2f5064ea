// The layout of the workers' files:
//   <base>/<run id>_<8 random>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
//   <base>/<run id>_<8 random>/attempt_<restart count>/{filtered_stdout.log,filtered_stderr.log}
// A start that uses no restart, for example after a membership change, has the same restart count as the
// previous start. The directory of the previous start is then renamed to attempt_<restart count>.<k>, where
// k = 1 is the oldest. So no file is overwritten, and attempt_<restart count> always has the newest files.
//
// A worker that survives its round keeps its files. A directory in which such a worker writes is not renamed: a
// start with the same restart count adds to it. A worker that starts in it and finds <local rank> taken gets
// <local rank>.<k>, where the largest k is the newest.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Paths of the files of one worker in one attempt. A path is empty if there is no such file.
struct WorkerFiles {
  std::string stdout_log = {};
  std::string stderr_log = {};
  std::string error_json = {};
};

struct AttemptFiles {
  std::string dir = {};                   // empty if there are no files
  std::vector<WorkerFiles> workers = {};  // indexed by local rank; without paths for workers that are kept
  bool added = false;  // `dir` is that of an earlier start, and workers of that start still write in it
  std::vector<std::string> in_use = {};  // `dir`, and the directories in which kept workers write
  // Shared by all workers that started in `dir`:
  std::string filtered_stdout_log = {};
  std::string filtered_stderr_log = {};
};

// The value of --log-dir that disables log files.
inline constexpr absl::string_view kLogsOff = "/dev/null";

// Returns the name of a run's directory without its random suffix. A '/' in the run id becomes '_'.
std::string RunDirectoryPrefix(absl::string_view run_id);

// Renames the file `path`, if there is one, to <path>.<k>, where k = 1 is the oldest. May block on the file system.
//   Errors: that of rename, with both paths.
absl::Status KeepOlderFile(const std::string& path);
// Writes `text` to a new file at `path`, after KeepOlderFile. May block on the file system.
//   Errors: that of the system, with the path.
absl::Status WriteNewFile(const std::string& path, const std::string& text);

// The log directory of one run of the launcher. Create, the non-const methods and the destructor may block on
// the file system.
class LogLayout {
 public:
  // Creates the run's directory in `base`, the value of --log-dir. Creates `base` if it does not exist. If
  // `base` is empty, uses a new directory below the temporary directory. If `base` is kLogsOff, creates no
  // directories, and there are no log files.
  //   Errors: the error of the failed system call, with the path.
  static absl::StatusOr<LogLayout> Create(absl::string_view base, absl::string_view run_id);

  LogLayout(LogLayout&&) = default;
  LogLayout& operator=(LogLayout&&) = delete;
  // Removes the empty directories that this object created. If the user gave the base, the directories of
  // started attempts are kept.
  ~LogLayout();

  // Creates the directories of an attempt before NewAttempt is called for this attempt. If NewAttempt is
  // called for another attempt instead, NewAttempt removes these directories. Errors are ignored, because
  // NewAttempt tries again and reports them.
  //   REQUIRES: NewAttempt has not been called with this restart count.
  void PrepareAttempt(int restart_count, int num_workers);
  // True if NewAttempt with the same arguments will not access the file system.
  bool IsPrepared(int restart_count, int num_workers) const;
  // Creates the directories of an attempt and returns the paths of its files. Call once for each start, after
  // the workers of the previous start have ended, except those with a local rank in `kept`.
  //   Errors: the error of the failed system call, with the path.
  absl::StatusOr<AttemptFiles> NewAttempt(int restart_count, int num_workers, const std::set<int>& kept = {});

  // Returns the directory of the newest attempt with this restart count; empty if logs are off.
  std::string AttemptDir(int restart_count) const;
  // True if no log files are created.
  bool off() const { return run_dir_.empty(); }
  // The run's directory; empty if logs are off.
  const std::string& run_dir() const { return run_dir_; }

 private:
  LogLayout() = default;

  struct Attempt {
    int restart_count = 0;
    std::string dir = {};
    std::vector<std::string> folders = {};  // of the workers that started in `dir`
    std::set<int> writers = {};             // local ranks of those that have not ended

    // Returns the path of a new folder for this worker. Does not create it.
    std::string AddFolder(int local_rank);
    // Creates `dir` and the folders.
    absl::Status Make() const;
    void RemoveIfEmpty() const;
  };
  // The directory that PrepareAttempt creates.
  struct Prepared {
    int num_workers = 0;
    Attempt attempt;
  };
  // Adds an attempt, without directories, and renames the directory of `newest`, which is null or an earlier attempt
  // with this restart count.
  absl::StatusOr<Attempt*> AddAttempt(int restart_count, Attempt* newest);

  std::string run_dir_;
  std::unique_ptr<const Prepared> prepared_;
  std::vector<Attempt> attempts_;
  std::string temporary_base_;  // the base that Create made; empty if the caller gave a base
};

}  // namespace ddprun
