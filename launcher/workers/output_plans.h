// Determines from the configuration how the output of each worker is handled in one start of the workers.
#pragma once

#include <memory>
#include <set>
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
  // Borrows `config` and `assignment`. `hostname` is used in line prefixes.
  OutputPlans(const LaunchConfig& config, const Assignment& assignment, std::string hostname);

  // Returns the plan for one worker. Its `files` are empty.
  WorkerOutput::Plan For(LocalRank local_rank) const;

 private:
  bool Shows(LocalRank local_rank) const;

  const LaunchConfig& config_;
  const Assignment& assignment_;
  const std::string hostname_;
  int num_shown_ = 0;  // number of workers shown on the console
};

// The name of this host, as gethostname returns it.
std::string HostNameOfSystem();

// The files of one start of the workers. They are created and opened before the workers start.
struct StartFiles {
  // Inputs of Open:
  int restart_count = 0;
  bool filters_stdout = false;
  bool filters_stderr = false;
  std::set<int> kept = {};                     // local ranks of workers that keep their files
  std::vector<WorkerOutput::Plan> plans = {};  // by local rank; Open sets `files` of all that are not kept

  // Results of Open:
  std::vector<WorkerOutput::Files> opened = {};  // by local rank; without files for workers that are kept
  std::string dir = {};                          // of the attempt; empty if there are no files
  bool added = false;                            // see AttemptFiles; the filtered logs are already open
  std::vector<std::string> in_use = {};          // see AttemptFiles
  std::unique_ptr<LogFile> filtered_stdout = {};
  std::unique_ptr<LogFile> filtered_stderr = {};
  std::vector<absl::Status> problems = {};  // why files are missing; the start continues without them

  // Returns true if Open will access the file system.
  bool NeedsDisk(const LogLayout& layout) const;
  // Creates the directories of the attempt (see LogLayout::NewAttempt) and opens the files. May block on the
  // file system.
  void Open(LogLayout& layout);
};

}  // namespace ddprun
