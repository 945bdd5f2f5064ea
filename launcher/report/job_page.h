// The page for people that says why a round of the job ended, over all its nodes: what failed first, how,
// what it said itself, what the system knows, what else failed, and what happens now.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// The page, at most 100 letters wide but for the places of a traceback, without colours, from its first rule
// to the newline after its last. Equal reports give equal texts.
// Texts of a report may hold anything that a worker can print.
std::string FormatJobPage(const JobReport& report);

// For a node that has just shown `shown`, its own failures in torchrun's look, when the job has one node and
// `report` one group: what that does not say yet, without rules. The exception is left out when `shown` has
// it, and the last lines of stderr when `shown` has all of them.
//   REQUIRES: report.groups.size() == 1.
std::string FormatWhatIsNew(const JobReport& report, absl::string_view shown);

// "1-3, 5, 8, 9" for ascending numbers.
std::string FormatRanks(const std::vector<Rank>& ranks);

}  // namespace ddprun
