// Text for counts and durations in messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// "1 node", "3 nodes".
std::string Counted(int64_t n, absl::string_view thing);

// In whole seconds, rounded down: "12 s"; below one second "350 ms".
std::string InSeconds(Duration d);

// In the two largest units: "3 d 4 h", "2 h 5 min", "3 min 20 s"; below one minute "57.3 s", below one second
// "350 ms". Negative durations count as zero.
std::string InLargestUnits(Duration d);

}  // namespace ddprun
