#include "launcher/numa/binding.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/config/gpus.h"
#include "launcher/config/nvml.h"
#include "launcher/numa/cpu_choice.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {
namespace {

absl::StatusOr<std::vector<int>> NodesOfGpus(const std::optional<std::string>& visible,
                                             const std::string& sys) {
  ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, nvml.Uuids());
  std::vector<int> nodes;
  for (const std::string& gpu : VisibleGpus(visible, uuids)) {
    ASSIGN_OR_RETURN(const std::string address, nvml.PciAddress(gpu));
    ASSIGN_OR_RETURN(const int node, NumaNodeOf(sys, address), absl::StrCat("GPU ", gpu));
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace

absl::StatusOr<std::vector<std::set<int>>> BindToNuma(NumaBinding binding, int num_workers,
                                                      const std::optional<std::string>& visible,
                                                      const std::string& sys) {
  const std::string option = absl::StrCat("--numa-binding=", NameOf(binding));
  ASSIGN_OR_RETURN(const std::vector<int> gpu_nodes, NodesOfGpus(visible, sys), option);
  ASSIGN_OR_RETURN(const std::set<int> allowed, AllowedCpus(), option);
  ASSIGN_OR_RETURN(const CpuTopology topology, ReadCpuTopology(sys, allowed), option);
  ASSIGN_OR_RETURN(std::vector<std::set<int>> sets, ChooseCpus(binding, topology, gpu_nodes, num_workers),
                   option);
  return sets;
}

absl::StatusOr<std::vector<std::set<int>>> WorkerCpus(const LaunchConfig& config, const EnvVars& base) {
  if (!config.numa_binding) return std::vector<std::set<int>>(config.num_local_workers);
  std::optional<std::string> visible;
  for (const auto& [name, value] : base) {
    if (name == "CUDA_VISIBLE_DEVICES") visible = value;
  }
  return BindToNuma(*config.numa_binding, config.num_local_workers, visible, "/sys");
}

}  // namespace ddprun
