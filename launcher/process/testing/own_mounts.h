// A private mount namespace for tests that mount file systems, so that other processes are not affected.
#pragma once

#include "absl/status/status.h"

namespace ddprun {

// Gives this process, and all processes that it starts later, a private mount namespace. Must be called
// before threads are started. Later calls of the same process return the result of the first call.
//   Errors: this machine does not permit it. Tests pass the error to GTEST_SKIP.
absl::Status UseOwnMounts();

}  // namespace ddprun
