// How much memory this process may still use, so that an allocation that does not fit is an error, and not a kill.
#pragma once

#include <cstdint>
#include <string>

#include "ddprun/status.h"

namespace ddprun {

struct MemoryRoom {
  uint64_t num_bytes = UINT64_MAX;
  std::string limited_by;  // "control group /job/step0", "this machine"
};

// The least of what the machine and the control groups of this process have left. Pages of files, which the kernel can
// drop, count as free. What cannot be read does not count as a limit.
//   root: the directory that contains /proc and /sys; for tests.
MemoryRoom RoomOfThisProcess(const std::string& root = "");

// OK if `room` has `num_bytes`.
//   Errors: kResourceExhausted: "<what> need 12.0 MiB of shared memory, and control group /job has 3.1 MiB left: ...".
Status CheckRoom(const MemoryRoom& room, uint64_t num_bytes, const std::string& what);

}  // namespace ddprun
