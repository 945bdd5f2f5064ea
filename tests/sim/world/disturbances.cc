#include "tests/sim/world/disturbances.h"

#include <algorithm>
#include <utility>

namespace ddprun::sim {

std::vector<Disturbance> DisturbancesOf(const Fault& fault, const std::vector<HostId>& hosts) {
  std::vector<HostId> from, to;
  for (const int host : fault.hosts) from.push_back(hosts[host]);
  for (const int host : fault.to) to.push_back(hosts[host]);
  if (fault.to.empty()) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (std::find(fault.hosts.begin(), fault.hosts.end(), i) == fault.hosts.end()) to.push_back(hosts[i]);
    }
  }
  if (to.empty()) return {};
  Disturbance there{.from = from, .to = to};
  if (fault.kind == FaultKind::kSlow) {
    there.max_delay = milliseconds(fault.n);
  } else if (fault.kind == FaultKind::kLossy) {
    there.loss = fault.n / 100.0;
  } else {
    there.loss = 1;
  }
  Disturbance back = there;
  std::swap(back.from, back.to);
  std::vector<Disturbance> disturbances;
  if (fault.kind != FaultKind::kCutIn) disturbances.push_back(std::move(there));
  if (fault.kind != FaultKind::kCutOut) disturbances.push_back(std::move(back));
  return disturbances;
}

}  // namespace ddprun::sim
