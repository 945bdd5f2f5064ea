// Takes something from this process that older kernels, containers and limits do not give: system calls,
// /proc. All that it starts from then on lacks it, too, and there is no way back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun {

// The numbers of the calls with these names; ends the process for one that is not known here.
std::vector<int> CallNumbers(const std::vector<std::string>& names);

// These system calls fail with `error` (errno), in this thread and what it starts.
absl::Status RefuseCalls(const std::vector<int>& calls, int error);
// All calls with greater numbers fail with ENOSYS, as in a kernel that came before them.
absl::Status RefuseCallsAfter(int last);

// Nothing is mounted at /proc. Needs root.
absl::Status UnmountProc();

// Runs `body` in a child of this process, which must have one thread. The test fails there, and here too when
// it did.
void InChild(const std::function<void()>& body);

}  // namespace ddprun
