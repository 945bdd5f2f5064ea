#include "launcher/agent/failure_cause.h"

#include "absl/strings/str_cat.h"
#include "base/exit_info.h"

namespace ddprun {

std::string FailureCause(const Failure& failure, absl::string_view progress) {
  return absl::StrCat("rank ", failure.rank.value(), " (local_rank ", failure.local_rank.value(), ") on ",
                      failure.host, " failed: ", ToString(failure.exit), progress.empty() ? "" : ", ",
                      progress);
}

}  // namespace ddprun
