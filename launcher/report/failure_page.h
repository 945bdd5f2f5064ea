// Formats the page that explains why a round ended, across all nodes of the job: the first failure with its
// error message and evidence from the system, other failures, lost nodes, and what happens next.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// Returns the page, from its first horizontal rule to the newline after its last one. For any contents of
// `report`, lines have no control characters, and no line has more than 100 code points, except for source
// locations in a traceback. Equal reports give equal pages.
std::string FormatFailurePage(const JobReport& report);

// Returns the information in `report` that `shown` does not contain, without horizontal rules. Intended for a
// job with one node, where `shown` is a report of the same failures in torchrun's format. Omits the exception
// if `shown` contains it, and the last lines of stderr if `shown` contains all of them.
//   REQUIRES: report.groups.size() == 1.
std::string FormatWhatIsNew(const JobReport& report, absl::string_view shown);

// Formats `ranks`, which must be in ascending order, in a form such as "1-3, 5, 8, 9".
std::string FormatRanks(const std::vector<Rank>& ranks);

}  // namespace ddprun
