// The files of one start of the workers, made and opened before it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"

namespace ddprun {

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
