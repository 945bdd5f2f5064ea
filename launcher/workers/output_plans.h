// What is to be done with the output of the workers of one start: the configuration, applied.
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
  // All is borrowed.
  //   hostname: for prefixes.
  OutputPlans(const LaunchConfig& config, const Assignment& assignment, std::string hostname);

  // Files are left out.
  WorkerOutput::Plan For(LocalRank local_rank) const;

 private:
  bool Shows(LocalRank local_rank) const;

  const LaunchConfig& config_;
  const Assignment& assignment_;
  const std::string hostname_;
  int num_shown_ = 0;  // workers
};

// The files of one start of the workers, made and opened before it.

struct StartFiles {
  // What is wanted.
  int restart_count = 0;
  bool filters_stdout = false;
  bool filters_stderr = false;
  std::vector<WorkerOutput::Plan> plans = {};  // by local rank; files are filled in

  // What there is.
  std::vector<WorkerOutput::Files> opened = {};  // by local rank
  std::unique_ptr<LogFile> filtered_stdout = {};
  std::unique_ptr<LogFile> filtered_stderr = {};
  std::vector<absl::Status> problems = {};  // what is missing, and done without

  // Open may wait for the file system.
  bool NeedsDisk(const LogLayout& layout) const;
  // As LogLayout::NewAttempt. May wait for the file system.
  void Open(LogLayout& layout);
};

}  // namespace ddprun
