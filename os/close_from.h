// Closes descriptors, also where close_range() is missing or refused.
#pragma once

namespace ddprun {

// Closes all descriptors from `first` on. Uses close_range (Linux 5.9), else /proc/self/fd, else tries all
// numbers below the limit of open files, 2^20 at most. Allocates nothing: may be called between fork and
// exec.
void CloseFrom(int first);

}  // namespace ddprun
