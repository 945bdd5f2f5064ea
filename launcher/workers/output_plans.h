// How the output of the workers of one start is handled, by the configuration.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/ids.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"

namespace ddprun {

class OutputPlans {
 public:
  // Borrows `config` and `assignment`. `hostname`: for line prefixes.
  OutputPlans(const LaunchConfig& config, const Assignment& assignment, std::string hostname);

  // `files` is left empty.
  WorkerOutput::Plan For(LocalRank local_rank) const;

 private:
  bool Shows(LocalRank local_rank) const;

  const LaunchConfig& config_;
  const Assignment& assignment_;
  const std::string hostname_;
  int num_shown_ = 0;  // workers shown on the console
};

// The files of one start of the workers, created and opened before it.
struct StartFiles {
  // Input.
  int restart_count = 0;
  bool filters_stdout = false;
  bool filters_stderr = false;
  std::vector<WorkerOutput::Plan> plans = {};  // by local rank; Open sets their `files`

  // Output of Open.
  std::vector<WorkerOutput::Files> opened = {};  // by local rank
  std::unique_ptr<LogFile> filtered_stdout = {};
  std::unique_ptr<LogFile> filtered_stderr = {};
  std::vector<absl::Status> problems = {};  // the start continues without these files

  // True: Open accesses the file system.
  bool NeedsDisk(const LogLayout& layout) const;
  // See LogLayout::NewAttempt. May block on the file system.
  void Open(LogLayout& layout);
};

}  // namespace ddprun
