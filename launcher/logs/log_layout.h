// Where the workers' files are:
//   <base>/<run id>_<8 random>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
//   <base>/<run id>_<8 random>/attempt_<restart count>/{filtered_stdout.log,filtered_stderr.log}
// A start that costs no restart, as after a change of membership, has the restart count of the one before.
// Then the files of that one move to attempt_<restart count>.<k>, k counting from 1, the oldest: nothing is
// lost, and attempt_<restart count> always has the newest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Files of one worker in one attempt. Without a name there is no such file.
struct WorkerFiles {
  std::string stdout_log = {};
  std::string stderr_log = {};
  std::string error_json = {};
};

struct AttemptFiles {
  std::string dir = {};  // empty: no files
  std::vector<WorkerFiles> workers = {};
  // Of all workers.
  std::string filtered_stdout_log = {};
  std::string filtered_stderr_log = {};
};

// As --log-dir: no files.
inline constexpr absl::string_view kLogsOff = "/dev/null";

// The name of a run's directory, but for its random letters: a '/' in a run id makes no directory of its own.
std::string RunDirectoryPrefix(absl::string_view run_id);

// One for each run of the launcher. What is not const may wait for the file system, the destructor too.
class LogLayout {
 public:
  // `base` is --log-dir: made if missing; empty: a new directory below the temporary one; "/dev/null": no
  // files.
  //   Errors: of the system, with the path.
  static absl::StatusOr<LogLayout> Create(absl::string_view base, absl::string_view run_id);

  LogLayout(LogLayout&&) = default;
  LogLayout& operator=(LogLayout&&) = delete;
  // Removes the empty directories that it made. In the user's base it keeps those of attempts.
  ~LogLayout();

  // Makes the directories of an attempt ahead of NewAttempt, which removes them if it is called for a different one.
  // Errors are left to NewAttempt.
  //   REQUIRES: there was no attempt with this restart count.
  void PrepareAttempt(int restart_count, int num_workers);
  // NewAttempt will not use the file system.
  bool IsPrepared(int restart_count, int num_workers) const;
  // Makes the directories for `num_workers`, in the order of local ranks. To be called once for each start of
  // the workers, when those of the last one have ended.
  absl::StatusOr<AttemptFiles> NewAttempt(int restart_count, int num_workers);

  // Where the newest attempt with that restart count has its files; empty when logs are off.
  std::string AttemptDir(int restart_count) const;
  // No files are made.
  bool off() const { return run_dir_.empty(); }
  // The run's directory; empty when logs are off.
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
  std::string temporary_base_;  // the directory made instead of a base; empty: there is a base
};

}  // namespace ddprun
