// Removes what older kernels and containers do not provide: system calls, /proc. This cannot be undone and
// applies to this process and to all processes that it starts afterwards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

// The numbers of the system calls with these names. Aborts on a name that is not in its table.
std::vector<int> CallNumbers(const std::vector<std::string>& names);

// These system calls fail with `error` (errno), in this thread and in what it starts.
absl::Status RefuseCalls(const std::vector<int>& calls, int error);
// All system calls with greater numbers fail with ENOSYS, as in an older kernel.
absl::Status RefuseCallsAfter(int last);

// Unmounts /proc. Needs root.
absl::Status UnmountProc();

// Runs `body` in a forked child. A failure in the child also fails the test here.
//   REQUIRES: this process has one thread.
void InChild(const std::function<void()>& body);

}  // namespace ddprun
