// Where the workers' files are:
//   <base>/<run id>_<8 random>/attempt_<restart count>[.<k>]/<local rank>/{stdout.log,stderr.log,error.json}
// The .<k> appears when an attempt's number is used again, after a change of membership: nothing is
// overwritten.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

// Files of one worker in one attempt. Without a name there is no such file, and what was to go there goes to
// the console.
struct WorkerFiles {
  std::string stdout_log;
  std::string stderr_log;
  std::string error_json;
};

// One for each run of the launcher.
class LogLayout {
 public:
  // `base` is --log-dir: made if missing; empty: a new directory below the temporary one; "/dev/null": no
  // files.
  //   Errors: of the system, with the path.
  static absl::StatusOr<LogLayout> Create(absl::string_view base, absl::string_view run_id);

  LogLayout(LogLayout&&) = default;
  LogLayout& operator=(LogLayout&&) = delete;
  // Removes the directories that hold no file, if the base was not the user's.
  ~LogLayout();

  // Makes the directories for `num_workers`, in the order of local ranks. To be called once for each start of
  // the workers.
  absl::StatusOr<std::vector<WorkerFiles>> NewAttempt(int restart_count, int num_workers);

  // The run's directory; empty when logs are off.
  const std::string& run_dir() const { return run_dir_; }

 private:
  LogLayout() = default;

  std::string run_dir_;
  std::map<int, int> times_used_;       // restart count -> attempts so far
  std::vector<std::string> to_remove_;  // directories of ours, parents first; removed only if empty
  bool temporary_ = false;
};

}  // namespace ddprun
