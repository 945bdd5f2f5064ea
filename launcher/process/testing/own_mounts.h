// A private mount namespace, so that tests that mount file systems do not affect other processes.
#pragma once

#include "absl/status/status.h"

namespace ddprun {

// Applies to this process and to all processes that it starts later. Call it before starting threads.
//   Errors: why this machine does not allow it, for GTEST_SKIP. Later calls return the result of the first.
absl::Status UseOwnMounts();

}  // namespace ddprun
