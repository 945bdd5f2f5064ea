// Mounts that only this process and its children see, so that tests that mount something disturb nobody.
#pragma once

#include "absl/status/status.h"

namespace ddprun {

// From now on, and for all processes started from now on. To be called before there are threads.
//   Errors: why this machine does not allow it, for GTEST_SKIP. Calls after the first give the same answer.
absl::Status UseOwnMounts();

}  // namespace ddprun
