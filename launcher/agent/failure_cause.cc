#include "launcher/agent/failure_cause.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string FailureCause(Rank rank, LocalRank local_rank, absl::string_view host, const ExitInfo& exit,
                         absl::string_view progress) {
  return absl::StrCat("rank ", rank.value(), " (local_rank ", local_rank.value(), ") on ", host,
                      " failed: ", ToString(exit), progress.empty() ? "" : ", ", progress);
}

}  // namespace ddprun
