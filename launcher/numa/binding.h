// --numa-binding on this machine.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// The processors of each worker of this node, by local rank; see ChooseCpus.
//   `visible`: CUDA_VISIBLE_DEVICES of the launcher; none: all GPUs. GPUs without UUIDs are taken in the
//   order of the PCI bus, which is CUDA's where all are of one kind. `sys`: "/sys", or a tree like it in
//   tests. Errors: of Nvml, ReadCpuTopology and ChooseCpus, with the option in front.
absl::StatusOr<std::vector<std::set<int>>> BindToNuma(NumaBinding binding, int num_workers,
                                                      const std::optional<std::string>& visible,
                                                      const std::string& sys);

// The same for a launch in the environment `base`; empty sets without --numa-binding: they may use all.
absl::StatusOr<std::vector<std::set<int>>> WorkerCpus(const LaunchConfig& config, const EnvVars& base);

}  // namespace ddprun
