// Expands Slurm's compact host lists: "node[01-03,7],login".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the hosts in list order. `text` is a comma-separated list of names. A name may contain any number
// of brackets with numbers and ranges, which are expanded: "r[1-2]n[08-10]" is r1n08, r1n09, r1n10, r2n08,
// and so on. Numbers in a range are padded to the width of its first number.
//   Errors: kInvalidArgument: a malformed bracket or range, an empty name, more than 2^20 hosts.
absl::StatusOr<std::vector<std::string>> ExpandHostList(absl::string_view text);

}  // namespace ddprun
