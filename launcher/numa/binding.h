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

// Returns the processors of each worker of this node, by local rank; see ChooseCpus.
//   visible: CUDA_VISIBLE_DEVICES of the launcher; nullopt: all GPUs. Without UUIDs, GPUs are numbered in PCI
//            bus order, which is also CUDA's order if all GPUs are of the same model.
//   sys:     "/sys", or a similar tree in tests.
//   Errors:  those of Nvml, ReadCpuTopology and ChooseCpus, prefixed with the option's name.
absl::StatusOr<std::vector<std::set<int>>> BindToNuma(NumaBinding binding, int num_workers,
                                                      const std::optional<std::string>& visible,
                                                      const std::string& sys);

// BindToNuma for a launch with the environment `base`. Without --numa-binding the sets are empty, which means
// no restriction.
absl::StatusOr<std::vector<std::set<int>>> WorkerCpus(const LaunchConfig& config, const EnvVars& base);

}  // namespace ddprun
