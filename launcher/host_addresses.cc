#include "launcher/host_addresses.h"

#include "launcher/hosting.h"
#include "launcher/scheduler/scheduled_job.h"
#include "launcher/scheduler/slurm_addresses.h"

namespace ddprun {

std::vector<std::string> AddressesInScheduler(const std::string& scheduler, const std::string& host) {
  return scheduler == kSlurmName ? SlurmAddressesOf(host) : std::vector<std::string>();
}

std::string ReachableName(const std::string& scheduler, const std::string& host) {
  if (!AddressesOf(host).empty()) return host;
  for (const std::string& address : AddressesInScheduler(scheduler, host)) {
    if (IsThisMachine(address)) return address;
  }
  return AddressOfThisMachine();
}

}  // namespace ddprun
