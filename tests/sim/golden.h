// Golden traces: worked examples of the protocol in tests/sim/golden, one story a file. A file is a comment, a script, a line
// "----", and every line of the trace of that script with all messages but heartbeats and their answers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/script.h"

namespace ddprun::sim {

struct Golden {
  std::string head;  // comment and script, as they are in the file
  Script script;
  std::string expected;  // the trace, with a line end after each line
};

// Errors: kInvalidArgument: there is no line "----", or the script is none.
absl::StatusOr<Golden> ParseGolden(absl::string_view text);
std::string ToString(const Golden& golden);

// What a file with this script must expect. Times are seconds since the start.
std::string GoldenTrace(const Script& script);

// The lines that differ, "-" and "+" before them, with two equal lines around; empty: the texts are equal.
std::string LineDiff(absl::string_view expected, absl::string_view actual);

}  // namespace ddprun::sim
