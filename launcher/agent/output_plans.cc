#include "launcher/agent/output_plans.h"

#include <utility>

#include "launcher/logs/line_prefix.h"

namespace ddprun {
namespace {

// With more than the system's 64 KiB a fast writer and we take turns less often. A user without privileges
// may have 64 MiB in all; beyond that each new pipe, also of other programs, gets 8 KiB.
constexpr int kPipeBytes = 256 << 10;
constexpr int kMaxWorkersWithLargePipes = 32;

}  // namespace

OutputPlans::OutputPlans(const LaunchConfig& config, const Assignment& assignment, const AttemptFiles& files,
                         std::string hostname, std::function<void(const absl::Status&)> warn)
    : config_(config),
      assignment_(assignment),
      files_(files),
      hostname_(std::move(hostname)),
      warn_(std::move(warn)),
      filtered_stdout_(OpenFiltered(files.filtered_stdout_log, config.stdout_filters)),
      filtered_stderr_(OpenFiltered(files.filtered_stderr_log, config.stderr_filters)) {}

std::shared_ptr<FilteredLog> OutputPlans::OpenFiltered(const std::string& path,
                                                       const std::vector<std::string>& filters) const {
  if (path.empty() || filters.empty()) return nullptr;
  auto log = FilteredLog::Open(path, filters, config_.max_log_bytes, warn_);
  if (log.ok()) return *std::move(log);
  warn_(log.status());
  return nullptr;
}

WorkerOutput::Plan OutputPlans::For(LocalRank local_rank) const {
  const LineOrigin origin = {.role = config_.role,
                             .local_rank = local_rank,
                             .rank = Rank(assignment_.first_rank.value() + local_rank.value()),
                             .hostname = hostname_};
  return {.redirects = config_.redirects.For(local_rank),
          .tee = config_.tee.For(local_rank),
          .files = files_.workers[static_cast<size_t>(local_rank.value())],
          .prefix = FormatPrefix(config_.line_prefix_template, origin),
          .shown = !config_.console_ranks ||
                   config_.console_ranks->count(static_cast<int>(local_rank.value())) > 0,
          .max_log_bytes = config_.max_log_bytes,
          .pipe_bytes = config_.num_local_workers <= kMaxWorkersWithLargePipes ? kPipeBytes : 0,
          .filtered_stdout = filtered_stdout_,
          .filtered_stderr = filtered_stderr_};
}

}  // namespace ddprun
