// Slurm's short form of a list of hosts: "node[01-03,7],login".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The hosts in the order written. A list is names with commas between them; a name may have any number of
// brackets with numbers and ranges, each standing for all of its numbers: "r[1-2]n[08-10]" is r1n08, r1n09,
// r1n10, r2n08, ... A range keeps the width of its first number.
//   Errors: kInvalidArgument: a bracket or range that is none, an empty name, more than 2^20 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text);

}  // namespace ddprun
