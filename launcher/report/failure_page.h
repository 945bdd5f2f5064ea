// The page that explains why a round of the job ended, over all its nodes: what failed first and how, its own
// error, evidence of the system, other failures, and what happens next.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// Returns the page, from its first rule to the newline after its last. Lines have at most 100 code points,
// except source locations of a traceback, and no control characters, whatever the texts of `report` contain.
// Equal reports give equal texts.
std::string FormatFailurePage(const JobReport& report);

// Returns what `report` adds to `shown`, without rules. For a job of one node, whose failures `shown` has in
// torchrun's format. Omits the exception if `shown` has it, and the last lines of stderr if `shown` has all
// of them.
//   REQUIRES: report.groups.size() == 1.
std::string FormatWhatIsNew(const JobReport& report, absl::string_view shown);

// "1-3, 5, 8, 9" for ascending numbers.
std::string FormatRanks(const std::vector<Rank>& ranks);

}  // namespace ddprun
