// Processes that use the GPUs of the workers before the workers start: they are of earlier or other jobs.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "launcher/config/nvml.h"

namespace ddprun {

struct Leftover {
  GpuProcess gpu = {};
  bool visible = false;      // whether /proc shows the process with an open device of NVIDIA, or may hide it;
                             // the members below are set only then
  std::string user = {};     // name, or number if it has no name
  std::string command = {};  // may be shortened
  std::optional<Duration> age = {};  // how long ago it started
  std::string job = {};              // "rank 3 of ddprun job X"; empty: none is known
};

// Looks up a process that uses a GPU. May block on a name server. Returns nullopt for `root`, which is this
// agent, and its descendants, and for the server of CUDA's multi-process service, which holds no memory of a
// job.
//   In a container, the driver may report pids of the host, which belong to other processes here. A process whose files
//   can be listed in `proc`, and which has none of NVIDIA's devices open, is therefore not visible.
std::optional<Leftover> FindLeftover(const GpuProcess& gpu, pid_t root, const std::string& proc = "/proc");

// Returns a warning about the processes on a GPU: what they are, and what to do. One line for the GPU, one
// for each process, at most 8, and one for the remedy.
//   gpu: its name for users, such as "GPU 0 (GPU-8932f937-...)".
//   REQUIRES: `processes` is not empty.
std::string LeftoverWarning(const std::string& gpu, const std::vector<Leftover>& processes);

}  // namespace ddprun
