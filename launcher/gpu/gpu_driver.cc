#include "launcher/gpu/gpu_driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/config/gpus.h"

namespace ddprun {
namespace {

std::string NameOf(const Nvml& nvml, const std::string& device, const std::vector<std::string>& uuids) {
  const std::string uuid = nvml.UuidOf(device).value_or("");
  const auto at = std::find(uuids.begin(), uuids.end(), uuid);
  std::string name = uuid.empty() || at == uuids.end()
                         ? absl::StrCat("GPU ", device)
                         : absl::StrCat("GPU ", at - uuids.begin(), " (", uuid, ")");
  if (absl::StartsWith(device, "MIG-")) absl::StrAppend(&name, ", MIG device ", device, ",");
  return name;
}

void FindLeftovers(const Nvml& nvml, pid_t root, const std::string& proc, UsedGpu& gpu) {
  const absl::StatusOr<std::vector<GpuProcess>> processes = nvml.Processes(gpu.device);
  gpu.leftovers_status = processes.status();
  if (!processes.ok()) return;
  for (const GpuProcess& process : *processes) {
    if (std::optional<Leftover> leftover = FindLeftover(process, root, proc)) {
      gpu.leftovers.push_back(*std::move(leftover));
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<UsedGpu>> FindUsedGpus(const Nvml& nvml, const std::optional<std::string>& visible,
                                                  bool leftovers, pid_t root, const std::string& proc) {
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, nvml.Uuids());
  std::vector<UsedGpu> gpus;
  for (const std::string& device : VisibleGpus(visible, uuids)) {
    UsedGpu& gpu = gpus.emplace_back(UsedGpu{.device = device, .name = NameOf(nvml, device, uuids)});
    if (const absl::StatusOr<std::string> address = nvml.PciAddress(device); address.ok()) {
      gpu.address = ParsePciAddress(*address);
    }
    gpu.health = nvml.MemoryHealth(device).value_or(GpuMemoryHealth{});
    if (leftovers) FindLeftovers(nvml, root, proc, gpu);
  }
  return gpus;
}

std::vector<GpuMemoryHealth> ReadMemoryHealth(const Nvml& nvml, const std::vector<UsedGpu>& gpus) {
  std::vector<GpuMemoryHealth> health;
  health.reserve(gpus.size());
  for (const UsedGpu& gpu : gpus) {
    GpuMemoryHealth& now = health.emplace_back(nvml.MemoryHealth(gpu.device).value_or(gpu.health));
    if (!now.uncorrected)
      now.uncorrected = gpu.health.uncorrected;  // The GPU does not respond, or has no ECC.
  }
  return health;
}

std::vector<GpuUse> ReadGpuUse(const Nvml& nvml, const std::vector<UsedGpu>& gpus) {
  std::vector<GpuUse> uses;
  for (const UsedGpu& gpu : gpus) {
    const absl::StatusOr<int> percent = nvml.BusyPercent(gpu.device);
    const absl::StatusOr<std::vector<GpuProcess>> processes = nvml.Processes(gpu.device);
    if (!percent.ok() || !processes.ok()) continue;
    GpuUse& use = uses.emplace_back(GpuUse{.percent = *percent});
    for (const GpuProcess& process : *processes) use.pids.push_back(process.pid);
  }
  return uses;
}

}  // namespace ddprun
