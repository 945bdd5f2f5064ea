// The addresses that Slurm uses for a node, for clusters whose node names do not resolve.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// The NodeAddr and NodeHostName in a line of `scontrol show node --oneliner`, without duplicates and without `node` itself.
std::vector<std::string> ParseNodeAddresses(absl::string_view line, absl::string_view node);

// Asks Slurm's controller with scontrol. Blocks for up to 5 s. Returns an empty list if the controller does not answer, or
// does not know the node.
std::vector<std::string> SlurmAddressesOf(const std::string& node);

}  // namespace ddprun
