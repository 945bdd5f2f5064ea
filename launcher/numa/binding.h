// Implements --numa-binding on this machine.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Returns the processors of each worker of this node, indexed by local rank; see ChooseCpus.
//   visible: the launcher's CUDA_VISIBLE_DEVICES; nullopt means all GPUs. A number in this list is the index
//            of a GPU in PCI bus order, which is also CUDA's order if all GPUs are of the same model.
//   sys:     "/sys", or a similar tree in tests.
//   Errors:  the errors of Nvml, AllowedCpus, ReadCpuTopology and ChooseCpus, prefixed with the option.
absl::StatusOr<std::vector<std::set<int>>> BindToNuma(NumaBinding binding, int num_workers,
                                                      const std::optional<std::string>& visible,
                                                      const std::string& sys);

// Calls BindToNuma for a launch with the environment `base`. Without --numa-binding, the sets are empty,
// which means that the workers are not restricted.
absl::StatusOr<std::vector<std::set<int>>> WorkerCpus(const LaunchConfig& config, const EnvVars& base);

}  // namespace ddprun
