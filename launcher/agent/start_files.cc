#include "launcher/agent/start_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

bool StartFiles::NeedsDisk(const LogLayout& layout) const {
  if (layout.off()) return false;
  const auto has_files = [](const WorkerOutput::Plan& plan) {
    return plan.redirects.out || plan.redirects.err || plan.tee.out || plan.tee.err;
  };
  return filters_stdout || filters_stderr || std::any_of(plans.begin(), plans.end(), has_files) ||
         !layout.IsPrepared(restart_count, static_cast<int>(plans.size()));
}

void StartFiles::Open(LogLayout& layout) {
  absl::StatusOr<AttemptFiles> files = layout.NewAttempt(restart_count, static_cast<int>(plans.size()));
  if (!files.ok()) {
    problems.emplace_back(files.status().code(),
                          absl::StrCat("the workers' files cannot be made, going on without them: ",
                                       std::string(files.status().message())));
    files.emplace().workers.resize(plans.size());
  }
  const auto open_filtered = [&](bool wanted, const std::string& path) -> std::unique_ptr<LogFile> {
    if (!wanted || path.empty() || plans.empty()) return nullptr;
    auto log = LogFile::Open(path, plans[0].max_log_bytes);
    if (log.ok()) return *std::move(log);
    problems.push_back(log.status());
    return nullptr;
  };
  filtered_stdout = open_filtered(filters_stdout, files->filtered_stdout_log);
  filtered_stderr = open_filtered(filters_stderr, files->filtered_stderr_log);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].files = files->workers[i];
    opened.push_back(WorkerOutput::OpenFiles(plans[i]));
  }
}

}  // namespace ddprun
