#include "launcher/workers/output_plans.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/logs/lines.h"

namespace ddprun {
namespace {

// Larger than the default of 64 KiB, to reduce context switches with a fast writer. By default, Linux limits
// the total size of an unprivileged user's pipes to 64 MiB. Beyond this limit, each new pipe of the user,
// even in another program, has only 8 KiB. A job with many workers therefore uses pipes of the default size.
constexpr int kPipeBytes = 256 << 10;
constexpr int kMaxWorkersWithLargePipes = 32;

}  // namespace

std::string HostNameOfSystem() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name;
}

OutputPlans::OutputPlans(const LaunchConfig& config, const Assignment& assignment, std::string hostname)
    : config_(config), assignment_(assignment), hostname_(std::move(hostname)) {
  for (int i = 0; i < config.num_local_workers; ++i) num_shown_ += Shows(LocalRank(i)) ? 1 : 0;
}

bool OutputPlans::Shows(LocalRank local_rank) const {
  return !config_.console_ranks || config_.console_ranks->count(static_cast<int>(local_rank.value())) > 0;
}

WorkerOutput::Plan OutputPlans::For(LocalRank local_rank) const {
  const LineOrigin origin = {.role = config_.role,
                             .local_rank = local_rank,
                             .rank = Rank(assignment_.first_rank.value() + local_rank.value()),
                             .hostname = hostname_};
  return {.redirects = config_.redirects.For(local_rank),
          .tee = config_.tee.For(local_rank),
          .prefix = FormatPrefix(config_.line_prefix_template, origin),
          .shown = Shows(local_rank),
          .alone = num_shown_ <= 1,
          .max_log_bytes = config_.max_log_bytes,
          .pipe_bytes = config_.num_local_workers <= kMaxWorkersWithLargePipes ? kPipeBytes : 0};
}

bool StartFiles::NeedsDisk(const LogLayout& layout) const {
  if (layout.off()) return false;
  const auto has_files = [](const WorkerOutput::Plan& plan) {
    return plan.redirects.out || plan.redirects.err || plan.tee.out || plan.tee.err;
  };
  return filters_stdout || filters_stderr || std::any_of(plans.begin(), plans.end(), has_files) ||
         !layout.IsPrepared(restart_count, static_cast<int>(plans.size()));
}

void StartFiles::Open(LogLayout& layout) {
  absl::StatusOr<AttemptFiles> files = layout.NewAttempt(restart_count, static_cast<int>(plans.size()), kept);
  if (!files.ok()) {
    problems.emplace_back(files.status().code(),
                          absl::StrCat("cannot create the workers' files, continuing without them: ",
                                       std::string(files.status().message())));
    files.emplace().workers.resize(plans.size());
  }
  dir = files->dir;
  added = files->added;
  in_use = files->in_use;
  const auto open_filtered = [&](bool wanted, const std::string& path) -> std::unique_ptr<LogFile> {
    if (!wanted || added || path.empty() || plans.empty()) return nullptr;
    auto log = LogFile::Open(path, plans[0].max_log_bytes);
    if (log.ok()) return *std::move(log);
    problems.push_back(log.status());
    return nullptr;
  };
  filtered_stdout = open_filtered(filters_stdout, files->filtered_stdout_log);
  filtered_stderr = open_filtered(filters_stderr, files->filtered_stderr_log);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].files = files->workers[i];
    opened.push_back(WorkerOutput::OpenFiles(plans[i]));  // opens nothing without paths
  }
}

}  // namespace ddprun
