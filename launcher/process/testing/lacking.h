// Disables system calls and /proc, to imitate older kernels and restricted containers. The effect cannot be
// undone. It applies to this process and to all processes that it starts later.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

// Returns the numbers of the system calls with these names. Aborts if a name is unknown.
std::vector<int> CallNumbers(const std::vector<std::string>& names);

// Makes the system calls with these numbers fail with `error` (errno), in this thread and in all threads and
// processes that it starts later.
absl::Status RefuseCalls(const std::vector<int>& calls, int error);
// Makes all system calls with numbers greater than `last` fail with ENOSYS, as in an older kernel.
absl::Status RefuseCallsAfter(int last);

// Unmounts /proc. Requires root.
absl::Status UnmountProc();

// Runs `body` in a forked child. A test failure in the child also fails the test in this process.
//   REQUIRES: this process has one thread.
void InChild(const std::function<void()>& body);

}  // namespace ddprun
