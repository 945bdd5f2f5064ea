// The one line that says which worker failed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/exit_info.h"
#include "base/ids.h"

namespace ddprun {

// "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57". `progress` is how far it had come, in
// its own words, or empty.
std::string FailureCause(Rank rank, LocalRank local_rank, absl::string_view host, const ExitInfo& exit,
                         absl::string_view progress);

}  // namespace ddprun
