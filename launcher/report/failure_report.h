// Formats the failure report: torchrun's text, byte for byte, and the tail of stderr that follows it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

// Returns torchrun's report, from its empty first line to the newline after its last horizontal rule.
//   name:     the program's name; see WorkerProgram::name.
//   failures: not empty, in the order in which they were noticed.
//   zone:     the time zone of the times in the report; absl::LocalTimeZone() except in tests.
std::string FormatFailureReport(absl::string_view name, const std::vector<FailureRecord>& failures,
                                absl::TimeZone zone);

// Returns the last `max_lines` lines of the root cause's stderr under a heading; empty if there are none.
//   failures: not empty.
std::string FormatStderrTail(const std::vector<FailureRecord>& failures, size_t max_lines);

}  // namespace ddprun
