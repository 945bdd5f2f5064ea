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

}  // namespace ddprun
