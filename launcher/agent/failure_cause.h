// The one line that says which worker failed.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/failure.h"

namespace ddprun {

// "rank 5 (local_rank 1) on node1 failed: exit code 3, after step 57". `progress` is how far it had come, in
// its own words, or empty.
std::string FailureCause(const Failure& failure, absl::string_view progress);

}  // namespace ddprun
