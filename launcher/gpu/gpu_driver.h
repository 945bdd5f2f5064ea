// What the agent asks NVIDIA's driver library about the GPUs of its workers. All calls may block; GpuWatch
// makes them on threads of their own.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/config/nvml.h"
#include "launcher/gpu/leftovers.h"
#include "launcher/gpu/xid.h"

namespace ddprun {

// A GPU, or a MIG device, that workers can use.
struct UsedGpu {
  std::string device = {};                 // the entry of CUDA_VISIBLE_DEVICES
  std::string name = {};                   // for users: "GPU 0 (GPU-8932f937-...)"
  std::optional<PciAddress> address = {};  // nullopt: not known
  GpuMemoryHealth health = {};
  std::vector<Leftover> leftovers = {};
  absl::Status leftovers_status = {};  // not OK: why the processes are not known
};

// Returns the GPUs that CUDA_VISIBLE_DEVICES=`visible` names, in its order; nullopt means all GPUs.
//   leftovers: whether to look for processes that are not descendants of `root`.
//   proc:      see FindLeftover.
//   Errors:    the driver reports no device, or does not work.
absl::StatusOr<std::vector<UsedGpu>> FindUsedGpus(const Nvml& nvml, const std::optional<std::string>& visible,
                                                  bool leftovers, pid_t root, const std::string& proc);

// Returns the state of the memory of each of `gpus`; the former state, or number of errors, if it cannot be read.
std::vector<GpuMemoryHealth> ReadMemoryHealth(const Nvml& nvml, const std::vector<UsedGpu>& gpus);

// Of a GPU while a round stands still.
struct GpuUse {
  std::vector<pid_t> pids = {};  // that compute on it, as the driver names them
  int percent = 0;               // Nvml::BusyPercent

  bool operator==(const GpuUse&) const = default;
};

// Returns the use of those of `gpus` whose use can be read.
std::vector<GpuUse> ReadGpuUse(const Nvml& nvml, const std::vector<UsedGpu>& gpus);

}  // namespace ddprun
