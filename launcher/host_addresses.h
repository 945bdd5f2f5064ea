// Addresses of the hosts of a scheduler's job, for clusters whose host names do not resolve.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// Returns the addresses of a host that the scheduler knows in addition to its name. Blocks for up to 5 s.
//   scheduler: as in ScheduledJob.
std::vector<std::string> AddressesInScheduler(const std::string& scheduler, const std::string& host);

// Returns the name or address under which the other nodes reach this one: `host`, its name in the scheduler, if it resolves;
// otherwise what the scheduler knows. Blocks.
std::string ReachableName(const std::string& scheduler, const std::string& host);

}  // namespace ddprun
