// Removes system calls and /proc, which older kernels and some containers lack. This cannot be undone, and it
// applies to this process and to all processes that it starts later.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

// Returns the numbers of the system calls with these names. Aborts if a name is not in its table.
std::vector<int> CallNumbers(const std::vector<std::string>& names);

// Makes these system calls fail with `error` (errno), in this thread and in all threads and processes that it
// starts.
absl::Status RefuseCalls(const std::vector<int>& calls, int error);
// Makes all system calls with numbers greater than `last` fail with ENOSYS, as in an older kernel.
absl::Status RefuseCallsAfter(int last);

// Unmounts /proc. Needs root.
absl::Status UnmountProc();

// Runs `body` in a forked child. A failure in the child also fails the test here.
//   REQUIRES: this process has one thread.
void InChild(const std::function<void()>& body);

}  // namespace ddprun
