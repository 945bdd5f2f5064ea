// Closes a range of descriptors, with fallbacks where close_range() is missing or denied.
#pragma once

namespace ddprun {

// Closes all descriptors >= `first`. Uses close_range (Linux 5.9), else /proc/self/fd, else tries every
// number below the hard limit of open files, at most 2^20. Allocates nothing: usable between fork and exec.
void CloseFrom(int first);

}  // namespace ddprun
