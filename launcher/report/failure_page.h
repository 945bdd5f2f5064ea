// The page that explains why a round ended, across all nodes of the job: what failed first and how, its error
// message, evidence from the system, other failures, and what happens next.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// Returns the page, from its first rule to the newline after its last rule. Lines have no control characters
// and at most 100 code points, except for source locations in a traceback, whatever `report` contains. Equal
// reports give equal pages.
std::string FormatFailurePage(const JobReport& report);

// Returns what `report` adds to `shown`, without rules. For a job with one node, whose failures `shown` lists
// in torchrun's format. Omits the exception if `shown` contains it, and the last lines of stderr if `shown`
// contains all of them.
//   REQUIRES: report.groups.size() == 1.
std::string FormatWhatIsNew(const JobReport& report, absl::string_view shown);

// Formats ranks in ascending order: "1-3, 5, 8, 9".
std::string FormatRanks(const std::vector<Rank>& ranks);

}  // namespace ddprun
