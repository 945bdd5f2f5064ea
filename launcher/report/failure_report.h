// The failure report: torchrun's text byte for byte, and below it what torchrun does not know.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

// torchrun's report, from its empty first line to the newline after its last rule.
//   name:     of the program, as in WorkerProgram::name.
//   failures: not empty, in the order in which they were noticed.
//   zone:     in which times are shown; absl::LocalTimeZone() but for tests.
std::string FormatFailureReport(absl::string_view name, const std::vector<FailureRecord>& failures,
                                absl::TimeZone zone);

// The last `max_lines` lines of the root cause's stderr under a heading; empty when none are known.
std::string FormatStderrTail(const std::vector<FailureRecord>& failures, size_t max_lines);

}  // namespace ddprun
