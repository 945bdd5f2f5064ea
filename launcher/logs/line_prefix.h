// What stands before each line of a worker on the console.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

struct LineOrigin {
  std::string role;
  LocalRank local_rank;
  Rank rank;
  std::string hostname;  // as gethostname has it
};

// `prefix_template` with its variables role_name, local_rank, rank and hostname, see SafeSubstitute; nothing
// is added, no blank and no colon. An empty one: "[${role_name}${local_rank}]:".
std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin);

}  // namespace ddprun
